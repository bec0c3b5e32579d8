"""Slices of a pool, and claims that hold its devices, as objects of the API."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from carina_dra.resource import limits
from tests.benchmarks.fleet import DRIVER, Object

NAMESPACE: Final = "in-use"


def node(index: int, **labels: str) -> Object:
    """A node; its name sorts by its index."""
    return {"metadata": {"name": node_name(index), "labels": labels}}


def nodes(number: int) -> tuple[Object, ...]:
    """Nodes without labels."""
    return tuple(node(index) for index in range(number))


def node_name(index: int) -> str:
    """The name of a node, which is that of its pool as well."""
    return f"node-{index:05}"


def slices_of(
    index: int, devices: Sequence[Object], counter_sets: Sequence[Object] = ()
) -> Iterator[Object]:
    """The slices of a node's pool, with as many devices and counter sets as the API allows."""
    name = node_name(index)
    yield from pool_slices(name, DRIVER, {"nodeName": name}, devices, counter_sets)


def pool_slices(
    name: str,
    driver: str,
    reaches: Object,
    devices: Sequence[Object],
    counter_sets: Sequence[Object] = (),
) -> Iterator[Object]:
    """The slices of a pool for the nodes that `reaches` describes."""
    contents = [
        *(
            {"sharedCounters": part}
            for part in _chunks(counter_sets, limits.COUNTER_SETS_PER_SLICE)
        ),
        *(
            {"devices": part}
            for part in _chunks(devices, limits.DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES)
        ),
    ]
    pool = {"name": name, "generation": 1, "resourceSliceCount": len(contents)}
    for number, content in enumerate(contents):
        spec = {"driver": driver, **reaches, "pool": pool, **content}
        yield {"metadata": {"name": f"{number:05}-{driver}-{name}"}, "spec": spec}


def holder(pool: str, device: str, *, driver: str = DRIVER) -> Object:
    """A claim that holds a device."""
    return _holder(f"{pool}-{device}", {"driver": driver, "pool": pool, "device": device})


def share_holder(pool: str, device: str, share: int, amounts: dict[str, str]) -> Object:
    """A claim that holds a share of a device."""
    name = f"{pool}-{device}-{share}"
    result = {
        "driver": DRIVER,
        "pool": pool,
        "device": device,
        "shareID": f"share-{name}",
        "consumedCapacity": amounts,
    }
    return _holder(name, result)


def _holder(name: str, result: Object) -> Object:
    return {
        "metadata": {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}"},
        "spec": {
            "devices": {"requests": [{"name": "gpus", "exactly": {"deviceClassName": "gpu"}}]}
        },
        "status": {"allocation": {"devices": {"results": [{"request": "gpus", **result}]}}},
    }


def _chunks(items: Sequence[Object], size: int) -> Iterable[Sequence[Object]]:
    return (items[start : start + size] for start in range(0, len(items), size))
