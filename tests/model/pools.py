"""The resource pools of a node (KEP-4381, KEP-4815)."""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

Object: TypeAlias = dict[str, Any]
Key: TypeAlias = tuple[str, str, str]
"""Driver, pool and name of a device."""


class PoolState(StrEnum):
    """Whether devices can be allocated from a pool."""

    READY = "ready"
    INCOMPLETE = "incomplete"
    INVALID = "invalid"


@dataclass(frozen=True, eq=False)
class ModelDevice:
    """A device of a pool."""

    key: Key
    body: Object
    slice: Object
    """The spec of its slice."""
    is_usable: bool
    """Whether the device, and not only its slice, is for the node."""


@dataclass(frozen=True, eq=False)
class ModelPool:
    """The slices of a pool as a node sees them."""

    driver: str
    name: str
    state: PoolState
    devices: tuple[ModelDevice, ...] = ()
    """Those of slices for the node."""
    elsewhere: tuple[ModelDevice, ...] = ()
    """Those of the pool's other slices."""
    counter_sets: tuple[Object, ...] = ()


def pools_of_node(
    slices: Iterable[Object], node: Object, gates: Collection[str]
) -> list[ModelPool]:
    """The pools with devices for a node."""
    by_pool: dict[tuple[str, str], list[Object]] = {}
    for published in slices:
        spec = published["spec"]
        by_pool.setdefault((spec["driver"], spec["pool"]["name"]), []).append(published)
    found = (_pool(key, of_pool, node, gates) for key, of_pool in sorted(by_pool.items()))
    return [pool for pool in found if pool is not None]


def is_for_node(where: Object, node: Object) -> bool:
    """Whether a slice or device with these fields is for the node."""
    if "nodeName" in where:
        return bool(where["nodeName"] == node["metadata"]["name"])
    if "nodeSelector" in where:
        return any(_matches(term, node) for term in where["nodeSelector"]["nodeSelectorTerms"])
    return bool(where.get("allNodes"))


def _matches(term: Object, node: Object) -> bool:
    labels = node["metadata"].get("labels") or {}
    fields = {"metadata.name": node["metadata"]["name"]}
    required = [(labels, each) for each in term.get("matchExpressions") or ()]
    required += [(fields, each) for each in term.get("matchFields") or ()]
    return bool(required) and all(_meets(values, each) for values, each in required)


def _meets(values: Object, required: Object) -> bool:
    value = values.get(required["key"])
    match required["operator"]:
        case "In":
            return value in required["values"]
        case "NotIn":
            return value not in required["values"]
        case "Exists":
            return value is not None
        case "DoesNotExist":
            return value is None
        case operator:
            raise NotImplementedError(f"no sample has the operator {operator}")


def _pool(
    key: tuple[str, str], published: Sequence[Object], node: Object, gates: Collection[str]
) -> ModelPool | None:
    known = [each["spec"] for each in sorted(published, key=_name)]
    supported = [
        spec
        for spec in known
        if "DRADeviceCompatibilityGroups" in gates or not _has_compatibility_groups(spec)
    ]
    partitionable = "DRAPartitionableDevices" in gates
    reaching = [
        spec
        for spec in supported
        if _reaches(spec, node)
        and (partitionable or not (spec.get("perDeviceNodeSelection") or _counter_sets(spec)))
    ]
    if not reaching:
        return None
    generation = max(_generation(spec) for spec in reaching)
    current = [spec for spec in reaching if _generation(spec) == generation]
    others: list[Object] = []
    if len(current) != current[0]["pool"]["resourceSliceCount"]:
        if any(_generation(spec) > generation for spec in known):
            return None
        whole = [spec for spec in supported if _generation(spec) == generation]
        if len(whole) != current[0]["pool"]["resourceSliceCount"]:
            return ModelPool(*key, PoolState.INCOMPLETE)
        others = [spec for spec in whole if not any(spec is each for each in current)]
    if not partitionable:
        devices = _devices(current, node)
        state = PoolState.INVALID if _repeats(device.key for device in devices) else PoolState.READY
        return ModelPool(*key, state, devices, _devices(others, node))
    sets = tuple(each for spec in (*current, *others) for each in _counter_sets(spec))
    devices = _devices([spec for spec in current if not _counter_sets(spec)], node)
    elsewhere = _devices([spec for spec in others if not _counter_sets(spec)], node)
    counters = {(each["name"], counter) for each in sets for counter in each["counters"]}
    is_valid = (
        not _repeats(device.key for device in devices)
        and not _repeats(each["name"] for each in sets)
        and all(
            (consumption["counterSet"], counter) in counters
            for device in (*devices, *elsewhere)
            for consumption in device.body.get("consumesCounters") or ()
            for counter in consumption["counters"]
        )
    )
    state = PoolState.READY if is_valid else PoolState.INVALID
    return ModelPool(*key, state, devices, elsewhere, sets)


def _devices(specs: Iterable[Object], node: Object) -> tuple[ModelDevice, ...]:
    return tuple(
        ModelDevice(
            key=(spec["driver"], spec["pool"]["name"], body["name"]),
            body=body,
            slice=spec,
            is_usable=not spec.get("perDeviceNodeSelection") or is_for_node(body, node),
        )
        for spec in specs
        for body in spec.get("devices") or ()
    )


def _reaches(spec: Object, node: Object) -> bool:
    if spec.get("perDeviceNodeSelection"):
        return any(is_for_node(body, node) for body in spec.get("devices") or ())
    return is_for_node(spec, node)


def _has_compatibility_groups(spec: Object) -> bool:
    return any(
        consumption.get("compatibilityGroups")
        for body in spec.get("devices") or ()
        for consumption in body.get("consumesCounters") or ()
    )


def _counter_sets(spec: Object) -> Sequence[Object]:
    return spec.get("sharedCounters") or ()


def _generation(spec: Object) -> int:
    return int(spec["pool"]["generation"])


def _name(published: Object) -> str:
    return str(published["metadata"]["name"])


def _repeats(values: Iterable[object]) -> bool:
    values = list(values)
    return len(set(values)) < len(values)
