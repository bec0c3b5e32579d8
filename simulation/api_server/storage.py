"""Objects by revision, and the history that watches read.

Every change has a revision, one higher than the last, which becomes the object's resourceVersion.
Stored bodies are replaced and never modified, so readers may keep them. The history is bounded;
requests for older revisions fail as expired.
"""

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import islice

from carina_dra.kube.body import Body, ObjectKey
from simulation.api_server.failure import expired

HISTORY = 10_000
"""Number of changes in the history."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change of one object; None stands for its absence."""

    revision: int
    storage: str
    key: ObjectKey
    before: Body | None
    after: Body | None


class Storage:
    """All objects. Several reads or writes that belong together need a `transaction`."""

    def __init__(self, *, history: int = HISTORY) -> None:
        self._changed = threading.Condition(threading.RLock())
        self._objects: dict[str, dict[ObjectKey, Body]] = {}
        self._history: deque[Change] = deque(maxlen=history)
        self._revision = 1

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Excludes other threads' reads and writes."""
        with self._changed:
            yield

    @property
    def revision(self) -> int:
        """The revision of the last change."""
        return self._revision

    @property
    def oldest(self) -> int:
        """The oldest revision that the history reaches back to."""
        return self._revision - len(self._history)

    def get(self, storage: str, key: ObjectKey) -> Body | None:
        """The object; None if it does not exist."""
        with self._changed:
            return self._objects.get(storage, {}).get(key)

    def objects(self, storage: str, revision: int | None = None) -> list[tuple[ObjectKey, Body]]:
        """The objects of a storage at a revision, by default now, by key. Raises Failure (410)."""
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
        """Stores an object with the next revision; gives the stored body."""
        with self._changed:
            objects = self._objects.setdefault(storage, {})
            kept = _at_revision(body, self._revision + 1)
            self._record(storage, key, objects.get(key), kept)
            objects[key] = kept
            return kept

    def remove(self, storage: str, key: ObjectKey) -> Body:
        """Removes an object; gives its last state with the revision of the removal."""
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
        """The changes after a revision, in order. Raises Failure (410) if it is too old."""
        with self._changed:
            if revision < self.oldest:
                raise expired(f"too old resource version: {revision} ({self.oldest})")
            return list(islice(self._history, revision - self.oldest, None))

    def wait(self, revision: int, timeout: float, is_over: Callable[[], bool]) -> None:
        """Waits for a change after a revision, for `wake`, or `timeout` seconds.

        Does not wait if `is_over`: `wake` may have been called since the caller has asked.
        """
        with self._changed:
            if self._revision <= revision and not is_over():
                self._changed.wait(timeout)

    def wake(self) -> None:
        """Wakes all waiting threads."""
        with self._changed:
            self._changed.notify_all()

    def forget(self) -> None:
        """Clears the history: every revision but the current one is too old."""
        with self._changed:
            self._history.clear()


def _at_revision(body: Body, revision: int) -> Body:
    return {**body, "metadata": {**body["metadata"], "resourceVersion": str(revision)}}
