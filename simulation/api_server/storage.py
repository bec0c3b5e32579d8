"""Objects by revision, and the history that watches read.

Every change has a revision of its own, one more than the last, which is the object's
resourceVersion. Bodies that are kept are never changed, only replaced: who reads one may hold on to
it. The history is bounded; what asks for a revision before it begins is refused as expired.
"""

import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from carina_dra.kube.body import Body, ObjectKey
from simulation.api_server.failure import expired

HISTORY = 10_000
"""Changes that are remembered."""


@dataclass(frozen=True, slots=True)
class Change:
    """One object went from a state to another; None is absence."""

    revision: int
    storage: str
    key: ObjectKey
    before: Body | None
    after: Body | None


class Storage:
    """All objects. Whoever reads or writes more than once does so in a `transaction`."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._objects: dict[str, dict[ObjectKey, Body]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._revision = 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Nobody else reads or writes in the meantime."""
        with self._changed:
            yield

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._revision

    @property
    def oldest(self) -> int:
        """The oldest revision whose state, and whose changes since, are remembered."""
        return self._revision - len(self._history)

    def get(self, storage: str, key: ObjectKey) -> Body | None:
        """The object, None where there is none."""
        with self._changed:
            return self._objects.get(storage, {}).get(key)

    def objects(self, storage: str, revision: int | None = None) -> list[tuple[ObjectKey, Body]]:
        """The objects of one kind, sorted by key, as they are or were. Raises Failure (410)."""
        with self._changed:
            objects = dict(self._objects.get(storage, {}))
            if revision is not None:
                for change in reversed(self.since(revision)):
                    if change.storage != storage:
                        continue
                    if change.before is None:
                        del objects[change.key]
                    else:
                        objects[change.key] = change.before
        return sorted(objects.items())

    def put(self, storage: str, key: ObjectKey, body: Body) -> Body:
        """Keeps an object, under the next revision; the body as it is kept."""
        with self._changed:
            objects = self._objects.setdefault(storage, {})
            kept = _at_revision(body, self._revision + 1)
            self._record(storage, key, objects.get(key), kept)
            objects[key] = kept
            return kept

    def remove(self, storage: str, key: ObjectKey) -> Body:
        """Removes an object; its last state, under the revision of its removal."""
        with self._changed:
            body = self._objects[storage].pop(key)
            self._record(storage, key, body, None)
            return _at_revision(body, self._revision)

    def _record(
        self, storage: str, key: ObjectKey, before: Body | None, after: Body | None
    ) -> None:
        self._revision += 1
        self._history.append(Change(self._revision, storage, key, before, after))
        self._changed.notify_all()

    def since(self, revision: int) -> list[Change]:
        """The changes after a revision, in order. Raises Failure (410) if some are forgotten."""
        with self._changed:
            if revision < self.oldest:
                raise expired(f"too old resource version: {revision} ({self.oldest})")
            return list(islice(self._history, revision - self.oldest, None))

    def wait(self, revision: int, timeout: float) -> None:
        """Waits until there are changes after a revision, or for `timeout` seconds, or a `wake`."""
        with self._changed:
            if self._revision <= revision:
                self._changed.wait(timeout)

    def wake(self) -> None:
        """Wakes all that wait."""
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """Forgets the history: every revision but the last is too old."""
        with self._changed:
            self._history.clear()


def _at_revision(body: Body, revision: int) -> Body:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(revision)}}
