"""Claims in short notation."""

import itertools
from typing import Final

from tests.benchmarks.fleet import DRIVER, Object, Pod

ATTRIBUTES: Final = f'device.attributes["{DRIVER}"]'
CAPACITY: Final = f'device.capacity["{DRIVER}"]'
NUMA: Final = "resource.kubernetes.io/numaNode"
PCIE: Final = "resource.kubernetes.io/pcieRoot"
_numbers = itertools.count()


def pod(*requests: Object, constraints: tuple[Object, ...] = ()) -> Pod:
    """A pod with one claim."""
    return (claim(*requests, constraints=constraints),)


def claim(*requests: Object, constraints: tuple[Object, ...] = ()) -> Object:
    """A claim with a name of its own."""
    number = next(_numbers)
    devices: Object = {"requests": list(requests)}
    if constraints:
        devices["constraints"] = list(constraints)
    metadata = {"name": f"claim-{number}", "namespace": "default", "uid": f"uid-{number}"}
    return {"metadata": metadata, "spec": {"devices": devices}}


def request(
    selector: str = "",
    count: int = 1,
    *,
    name: str = "gpus",
    device_class: str = "gpu",
    amounts: dict[str, str] | None = None,
) -> Object:
    """A request for `count` devices, or for these amounts of one device."""
    asked = alternative(selector, count, name=name, device_class=device_class)
    del asked["name"]
    if amounts:
        asked["capacity"] = {"requests": amounts}
    return {"name": name, "exactly": asked}


def first_available(name: str, *alternatives: Object) -> Object:
    """A request for the first of these alternatives that a node has."""
    return {"name": name, "firstAvailable": list(alternatives)}


def alternative(
    selector: str, count: int = 1, *, name: str = "gpus", device_class: str = "gpu"
) -> Object:
    """An alternative of a request."""
    asked: Object = {
        "name": name,
        "deviceClassName": device_class,
        "allocationMode": "ExactCount",
        "count": count,
    }
    if selector:
        asked["selectors"] = [{"cel": {"expression": selector}}]
    return asked


def match(attribute: str, *requests: str) -> Object:
    """A constraint: the devices of the requests, or all, have one value of the attribute."""
    return _constraint("matchAttribute", attribute, requests)


def distinct(attribute: str, *requests: str) -> Object:
    """A constraint: the devices of the requests, or all, differ in the attribute."""
    return _constraint("distinctAttribute", attribute, requests)


def _constraint(rule: str, attribute: str, requests: tuple[str, ...]) -> Object:
    return {rule: attribute, **({"requests": list(requests)} if requests else {})}


def has_model(model: str) -> str:
    """A selector for GPUs of a model."""
    return f'{ATTRIBUTES}.model == "{model}"'


def has_memory(at_least: str) -> str:
    """A selector for GPUs with this much memory or more."""
    return f'{CAPACITY}.memory.compareTo(quantity("{at_least}")) >= 0'
