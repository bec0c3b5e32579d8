"""Objects by key, as a reflector keeps them; and changes as values.

Invariant: an object is never replaced by an older version of itself, except by a whole list, which
is authoritative. Versions compare as integers, as Kubernetes guarantees (KEP-5504).
"""

import sys
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Generic, Protocol, TypeAlias, TypeVar

from carina_dra.kube.body import ObjectKey

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreEntry(Generic[T]):
    """An object at one version."""

    version: int
    value: T


@dataclass(frozen=True, slots=True)
class Created(Generic[T]):
    """An object is new to the store."""

    key: ObjectKey
    value: T


@dataclass(frozen=True, slots=True)
class Updated(Generic[T]):
    """An object has another version than before."""

    key: ObjectKey
    before: T
    after: T


@dataclass(frozen=True, slots=True)
class Removed(Generic[T]):
    """An object no longer exists; `value` is its last known state."""

    key: ObjectKey
    value: T


ObjectChange: TypeAlias = Created[T] | Updated[T] | Removed[T]


class KnownObjects(Protocol[T]):
    """What is known of objects, so that changes can be told."""

    def entry(self, key: ObjectKey) -> StoreEntry[T] | None:
        """The object with its version; None if there is none."""

    def put(self, key: ObjectKey, entry: StoreEntry[T]) -> ObjectChange[T] | None:
        """Applies an object; None if this version or a newer one is known."""

    def remove(self, key: ObjectKey, version: int) -> Removed[T] | None:
        """Applies a deletion at a version; None if a newer one is known."""

    def replace(self, entries: Mapping[ObjectKey, StoreEntry[T]]) -> list[ObjectChange[T]]:
        """Applies a whole list. Returns the changes."""


class Versions(Generic[T]):
    """The versions of objects whose values are kept elsewhere; for one thread.

    The changes have None for the value before. Names are interned: who keeps the same text,
    interned, shares it.
    """

    def __init__(self) -> None:
        self._versions: dict[str, int] = {}

    def entry(self, key: ObjectKey) -> StoreEntry[T | None] | None:
        """The version of an object; None if there is none."""
        version = self._versions.get(str(key))
        return None if version is None else StoreEntry(version, None)

    def put(self, key: ObjectKey, entry: StoreEntry[T | None]) -> ObjectChange[T | None] | None:
        """Applies an object; None if this version or a newer one is known."""
        name = sys.intern(str(key))
        known = self._versions.get(name)
        if known is not None and known >= entry.version:
            return None
        self._versions[name] = entry.version
        return Created(key, entry.value) if known is None else Updated(key, None, entry.value)

    def remove(self, key: ObjectKey, version: int) -> Removed[T | None] | None:
        """Applies a deletion at a version; None if a newer one is known."""
        name = str(key)
        known = self._versions.get(name)
        if known is None or known > version:
            return None
        del self._versions[name]
        return Removed(key, None)

    def replace(
        self, entries: Mapping[ObjectKey, StoreEntry[T | None]]
    ) -> list[ObjectChange[T | None]]:
        """Applies a whole list. Returns the changes."""
        before: dict[ObjectKey, StoreEntry[T | None]] = {
            ObjectKey.read(name): StoreEntry(version, None)
            for name, version in self._versions.items()
        }
        self._versions = {sys.intern(str(key)): entry.version for key, entry in entries.items()}
        return difference(before, entries)


class Store(Generic[T]):
    """The objects of a selection. Many threads may read it; one reflector writes it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._entries: dict[ObjectKey, StoreEntry[T]] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: ObjectKey) -> T | None:
        """The object; None if there is none."""
        entry = self._entries.get(key)
        return None if entry is None else entry.value

    def entry(self, key: ObjectKey) -> StoreEntry[T] | None:
        """The object with its version; None if there is none."""
        return self._entries.get(key)

    def snapshot(self) -> dict[ObjectKey, T]:
        """All objects, as they are at this moment."""
        with self._lock:
            return {key: entry.value for key, entry in self._entries.items()}

    def put(self, key: ObjectKey, entry: StoreEntry[T]) -> ObjectChange[T] | None:
        """Stores an object; None if the store has this version or a newer one."""
        with self._lock:
            known = self._entries.get(key)
            if known is not None and known.version >= entry.version:
                return None
            self._entries[key] = entry
        if known is None:
            return Created(key, entry.value)
        return Updated(key, known.value, entry.value)

    def remove(self, key: ObjectKey, version: int) -> Removed[T] | None:
        """Removes an object that was deleted at a version; None if the store has a newer one."""
        with self._lock:
            known = self._entries.get(key)
            if known is None or known.version > version:
                return None
            del self._entries[key]
        return Removed(key, known.value)

    def replace(self, entries: Mapping[ObjectKey, StoreEntry[T]]) -> list[ObjectChange[T]]:
        """Replaces all objects by those of a list. Returns the changes."""
        with self._lock:
            changes = difference(self._entries, entries)
            self._entries = dict(entries)
        return changes


def difference(
    before: Mapping[ObjectKey, StoreEntry[T]], after: Mapping[ObjectKey, StoreEntry[T]]
) -> list[ObjectChange[T]]:
    """The changes between two lists: removals first, then the rest in the order of `after`."""
    changes: list[ObjectChange[T]] = [
        Removed(key, entry.value) for key, entry in before.items() if key not in after
    ]
    for key, entry in after.items():
        known = before.get(key)
        if known is None:
            changes.append(Created(key, entry.value))
        elif known.version != entry.version:
            changes.append(Updated(key, known.value, entry.value))
    return changes
