"""What the watches of volumes take, from the list to the mirror: there may be very many of them."""

import gc
import threading
import tracemalloc
from collections.abc import Callable, Iterator
from typing import Any, Final, Self, TypeVar

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import EVERYTHING, Client, Listing, Selection
from carina_dra.kube.errors import ApiOperation, PathNotFound
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.run.watches import Watches
from tests.eventually import eventually

_COUNT: Final = 6_000
"""Claims, and as many volumes. Tables have just become larger, so this is the worst case."""
_BYTES: Final = 300
"""The most that an object may take."""

T = TypeVar("T")


class _Quiet:
    """A watch of which nothing comes until it is interrupted."""

    def __init__(self) -> None:
        self._interrupted = threading.Event()
        self.interrupt = self._interrupted.set

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __iter__(self) -> Iterator[Any]:
        self._interrupted.wait()
        return iter(())


class _Volumes(Client):
    """A cluster that has claims, their volumes, and nothing else."""

    def __init__(self, count: int) -> None:
        self._count = count

    def list(self, resource: ApiResource, *_: Any, **__: Any) -> Listing[Body]:
        raise PathNotFound(ApiOperation.on("list", resource), "not served")

    def list_as(
        self,
        resource: ApiResource,
        read: Callable[[Body], T],
        selection: Selection = EVERYTHING,
        **_: Any,
    ) -> Listing[T]:
        bodies = {"persistentvolumeclaims": _claim, "persistentvolumes": _volume}
        if (body := bodies.get(resource.plural)) is None:
            return Listing([], "1")
        return Listing([read(body(index)) for index in range(self._count)], "1")

    def watch(self, *_: Any, **__: Any) -> Any:
        return _Quiet()


def _volume_name(index: int) -> str:
    return f"pvc-{index:08x}-7d2d-4d0e-9a51-3f0f0c8f6c11-zone1"


def _claim(index: int) -> Body:
    return {
        "metadata": {
            "name": f"checkpoints-of-training-run-{index:06d}",
            "namespace": f"tenant-{index % 100:03d}",
            "resourceVersion": str(1_000_000 + index),
            "annotations": {"pv.kubernetes.io/bind-completed": "yes"},
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}},
            "volumeName": _volume_name(index),
        },
        "status": {"phase": "Bound"},
    }


def _volume(index: int) -> Body:
    zone = {"key": "zone", "operator": "In", "values": [f"zone-{index % 3}"]}
    return {
        "metadata": {"name": _volume_name(index), "resourceVersion": str(2_000_000 + index)},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": "disk", "volumeHandle": f"handle-{index}"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [zone]}]}},
            "storageClassName": "fast",
            "claimRef": {"name": f"checkpoints-of-training-run-{index:06d}"},
        },
        "status": {"phase": "Bound"},
    }


def _bytes_each(count: int) -> float:
    """Bytes for each object that is watched."""
    mirror = Mirror(Snapshot(now=0))
    watches = Watches(_Volumes(count), mirror, lambda work: work())
    gc.collect()
    before, _ = tracemalloc.get_traced_memory()
    watches.start()
    try:
        eventually(lambda: not watches.unsynced(), within=60)
        gc.collect()
        after, _ = tracemalloc.get_traced_memory()
    finally:
        watches.stop()
    assert (
        len(mirror.state.occupancy.volumes.claims)
        == len(mirror.state.occupancy.volumes.volumes)
        == count
    )
    return (after - before) / (2 * count)


def test_claims_and_volumes_take_less_than_300_bytes_each() -> None:
    _bytes_each(1)
    tracemalloc.start()
    try:
        # In one of two rounds, the table of all interned strings may just become larger.
        least = min(_bytes_each(_COUNT) for _ in range(2))
    finally:
        tracemalloc.stop()
    assert least < _BYTES
