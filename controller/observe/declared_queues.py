"""The Queue objects, and who may use them: which namespaces, with which priorities.

What a queue does not allow, no queue below it allows. A queue that does not exist refuses nobody:
what is wrong with it is said by the engine, and nothing starts in it.
"""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping

from controller.api.queue import DeclaredQueue
from controller.engine.model.queue import EVICTION_GRACE, QUEUE_LABEL, Hold


class DeclaredQueues:
    """The Queue objects by name. Used by one thread."""

    def __init__(self) -> None:
        self.by_name: dict[str, DeclaredQueue] = {}
        self._children = Counter[str]()
        """By name: how many queues name it as their parent."""

    def put(self, name: str, queue: DeclaredQueue | None) -> bool:
        """Applies a Queue, or its removal; whether more than its status is new."""
        before = self.by_name.pop(name, None)
        if before is not None and before.queue.parent is not None:
            self._children[before.queue.parent] -= 1
        if queue is not None:
            self.by_name[name] = queue
            if queue.queue.parent is not None:
                self._children[queue.queue.parent] += 1
        return before != queue

    def namespace_refusal(
        self, queue: str, namespace: str, labels: Mapping[str, str]
    ) -> str | None:
        """Why a namespace with these labels may not use a queue; None if it may.

        A queue without `namespaces` admits nobody. If there are queues below it, it restricts
        nothing: these say who may use them.
        """
        for at in self._upwards(queue):
            allowed = at.namespaces
            if allowed is None:
                is_allowed = self._children[at.queue.name] > 0
            else:
                is_allowed = allowed.allows(namespace, labels)
            if not is_allowed:
                return (
                    f"{_named(at, queue)} does not allow namespace {namespace}; name another queue "
                    f"in the label {QUEUE_LABEL}, or add the namespace to its spec.namespaces"
                )
        return None

    def priority_refusal(self, queue: str, priority: int) -> str | None:
        """Why pods of a priority may not use a queue; None if they may."""
        for at in self._upwards(queue):
            allowed = at.priorities
            if allowed is not None and allowed.nearest(priority) != priority:
                return (
                    f"{_named(at, queue)} does not allow pods of priority {priority}; create them "
                    f"with a priorityClassName whose value is {allowed}"
                )
        return None

    def priority(self, queue: str, priority: int) -> int:
        """What a priority counts as in a queue: the nearest that it and those above it allow."""
        for at in self._upwards(queue):
            if at.priorities is not None:
                priority = at.priorities.nearest(priority)
        return priority

    def missing_namespaces(self, existing: Collection[str]) -> Mapping[str, tuple[str, ...]]:
        """By queue: the namespaces that it names and that do not exist, if there are any."""
        found = {}
        for name, queue in self.by_name.items():
            named = () if queue.namespaces is None else queue.namespaces.names or ()
            if missing := tuple(each for each in named if each not in existing):
                found[name] = missing
        return found

    def without_namespaces(self) -> list[str]:
        """The queues that admit nobody: they have no `namespaces`, and no queues below them."""
        return [
            name
            for name, queue in self.by_name.items()
            if queue.namespaces is None and not self._children[name]
        ]

    def is_emptied(self, queue: str) -> bool:
        """Whether a queue is emptied, or one above it is."""
        return any(at.queue.hold is Hold.DRAIN for at in self._upwards(queue))

    def eviction_grace(self, queue: str) -> float:
        """The longest grace period of a queue's pods when they are evicted, in seconds."""
        values = (at.queue.eviction_grace for at in self._upwards(queue))
        return next((value for value in values if value is not None), EVICTION_GRACE)

    def _upwards(self, queue: str) -> Iterator[DeclaredQueue]:
        """A queue and those above it, as far as they exist; each once."""
        seen: set[str] = set()
        at: str | None = queue
        while at is not None and at in self.by_name and at not in seen:
            seen.add(at)
            yield self.by_name[at]
            at = self.by_name[at].queue.parent


def _named(at: DeclaredQueue, queue: str) -> str:
    name = at.queue.name
    return f"Queue {name}" if name == queue else f"Queue {name}, which is above Queue {queue},"
