"""Follows one resource: its objects are read, and each change is work for the loop.

An object that cannot be read is set aside. Its last state that could be read stays, since removing
it would look like a deletion; and with its deletion this state goes, too.
"""

from collections.abc import Callable
from functools import partial
from typing import Generic, TypeVar

from carina_dra.kube.body import Body, key_of
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from controller.observe.set_aside import SetAsideObjects
from controller.run.inbox import Task
from controller.run.subjects import Subject

T = TypeVar("T")


class Follower(Generic[T]):
    """What is done with the objects of one resource. Used by the thread that follows it."""

    def __init__(
        self, subject: Subject[T], deliver: Callable[[Task], None], set_aside: SetAsideObjects
    ) -> None:
        """`deliver` takes the work."""
        self._subject = subject
        self._deliver = deliver
        self._set_aside = set_aside
        self._name = subject.resource.qualified_name

    def parse(self, body: Body) -> T | None:
        """Reads an object; None if it cannot be read."""
        read: list[T] = []

        def work() -> None:
            read.append(self._subject.parse(body))

        self._set_aside.attempt(self._name, str(key_of(body)), "read", work)
        return read[0] if read else None

    def changed(self, change: ObjectChange[T | None]) -> None:
        """Takes a change of an object. What it was before does not matter."""
        key = change.key
        match change:
            case Created(_, value) | Updated(_, _, value):
                if value is not None:
                    self._apply(str(key), partial(self._subject.put, key, value))
                    self._subject.delivered(value)
            case Removed():
                self._set_aside.forget(self._name, str(key))
                self._apply(str(key), partial(self._subject.remove, key))

    def _apply(self, name: str, apply: Callable[[], None]) -> None:
        def work() -> None:
            self._set_aside.attempt(self._name, name, "applied", apply)

        self._deliver(work)
