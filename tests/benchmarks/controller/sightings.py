"""When objects came into a state, as a client sees it that watches them."""

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from simulation.kubernetes.process import NotReachedError

_SYNC_S: Final = 30.0


class Sightings:
    """The times at which the objects of a namespace were first seen in a state, by their names."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._changed = threading.Condition()

    def note(self, name: str) -> None:
        """Notes that an object is in the state now."""
        with self._changed:
            self._times.setdefault(name, time.perf_counter())
            self._changed.notify_all()

    def wait(self, number: int, *, timeout: float) -> list[float]:
        """Waits for this number of objects; gives the times in order, on the performance counter.

        Raises:
            NotReachedError: there are fewer after `timeout` seconds.
        """
        with self._changed:
            if not self._changed.wait_for(lambda: len(self._times) >= number, timeout):
                raise NotReachedError(
                    f"waited {timeout:.0f} s for {number} objects; {len(self._times)} were seen"
                )
            return sorted(self._times.values())


@contextmanager
def sightings(
    client: Client, resource: ApiResource, namespace: str, is_in_state: Callable[[Body], bool]
) -> Iterator[Sightings]:
    """Watches the objects of a namespace while the context lasts."""
    seen = Sightings()

    def take(change: ObjectChange[bool]) -> None:
        match change:
            case Created(key, True) | Updated(key, _, True):
                seen.note(key.name)
            case Created() | Updated() | Removed():
                pass

    reflector = Reflector(
        client, resource, is_in_state, selection=Selection(namespace), on_change=take
    )
    reflector.start()
    try:
        if not reflector.wait_synced(_SYNC_S):
            raise NotReachedError(f"waited {_SYNC_S:.0f} s for a list of {resource.plural}")
        yield seen
    finally:
        reflector.stop()
