"""Specs of claims as a hostile tenant writes them."""

from random import Random
from typing import Final

from carina_dra.kube.body import Body
from tests.integration.controller.fuzz.selectors import selector

_CLASSES: Final = ("gpu.carina.dev", "mig.gpu.carina.dev", "share.gpu.carina.dev")
_ODD_CLASSES: Final = (*_CLASSES, "monitor.gpu.carina.dev", "absent.example")
_ATTRIBUTES: Final = ("parentUUID", "uuid", "productName", "profile", "numaNode", "absent")
_QUALIFIED: Final = ("resource.kubernetes.io/pcieRoot", "resource.kubernetes.io/numaNode")
_ODD_AMOUNTS: Final = ("0", "1", "1n", "1m", "0.5", "1Mi", "1Gi", "40Gi", "81559Mi", "1E18", "1e9")
_MOST_REQUESTS: Final = 32
_MOST_LEVELS: Final = 1_200


def plain(draw: Random) -> Body:
    """Asks for what a tenant may well want: it starts, if there is room in the queue."""
    device_class = draw.choice(_CLASSES)
    exactly: Body = {"deviceClassName": device_class, "count": draw.choice((1, 1, 1, 2, 4))}
    match device_class:
        case "gpu.carina.dev":
            pass
        case "mig.gpu.carina.dev":
            profile = draw.choice(("1g.10gb", "2g.20gb", "3g.40gb", "7g.80gb"))
            expression = f"device.attributes['gpu.carina.dev'].profile == '{profile}'"
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        case _:
            amounts = {"memory": draw.choice(("8Mi", "8Gi", "30Gi", "70Gi"))}
            exactly["capacity"] = {"requests": amounts}
    return {"devices": {"requests": [{"name": "r0", "exactly": exactly}]}}


def costly(draw: Random) -> Body:
    """Selectors that are evaluated for each device."""
    selectors = [{"cel": {"expression": selector(draw)}} for _ in range(draw.randint(1, 8))]
    exactly = {"deviceClassName": draw.choice(_CLASSES), "selectors": selectors}
    return {"devices": {"requests": [{"name": "r0", "exactly": exactly}]}}


def contradicting(draw: Random) -> Body:
    """Many small devices under constraints that no choice of devices satisfies."""
    number = draw.choice((3, 8, 8, 16))
    names = [f"r{index}" for index in range(number)]
    attribute = f"gpu.carina.dev/{draw.choice(('parentUUID', 'parentUUID', 'uuid', 'profile'))}"
    middle, last = draw.choice(names[1:-1]), names[-1]
    constraints: list[Body] = [
        {"requests": [names[0], middle], "matchAttribute": attribute},
        {"requests": [middle, last], "matchAttribute": attribute},
        {"requests": [names[0], last], "distinctAttribute": attribute},
    ]
    device_class = draw.choice(_CLASSES[1:])
    requests = [{"name": name, "exactly": {"deviceClassName": device_class}} for name in names]
    return {"devices": {"requests": requests, "constraints": constraints}}


def wild(draw: Random) -> Body:
    """Any mixture of what the schema allows; the API server refuses some of it."""
    names = [f"r{index}" for index in range(draw.choice((1, 2, 5, _MOST_REQUESTS)))]
    devices: Body = {"requests": [_request(draw, name) for name in names]}
    if draw.random() < 0.5:
        devices["constraints"] = [
            _constraint(draw, names) for _ in range(draw.choice((1, 3, _MOST_REQUESTS)))
        ]
    if draw.random() < 0.5:
        devices["config"] = [
            {
                "requests": draw.sample(names, draw.randint(0, min(2, len(names)))),
                "opaque": {"driver": "gpu.carina.dev", "parameters": _parameters(draw)},
            }
            for _ in range(draw.choice((1, 1, _MOST_REQUESTS)))
        ]
    return {"devices": devices}


def _request(draw: Random, name: str) -> Body:
    if draw.random() < 0.25:
        number = draw.choice((2, 8))
        return {
            "name": name,
            "firstAvailable": [{"name": f"s{at}", **_exactly(draw)} for at in range(number)],
        }
    exactly = _exactly(draw)
    if draw.random() < 0.05:
        exactly["adminAccess"] = True
    return {"name": name, "exactly": exactly}


def _exactly(draw: Random) -> Body:
    exactly: Body = {"deviceClassName": draw.choice(_ODD_CLASSES)}
    if draw.random() < 0.2:
        exactly["allocationMode"] = "All"
    else:
        exactly["count"] = draw.choice((1, 1, 2, 8, 32, 9, 2**31))
    if draw.random() < 0.3:
        exactly["selectors"] = [{"cel": {"expression": selector(draw)}}]
    if draw.random() < 0.3:
        names = draw.sample(("memory", "cores", "multiprocessors", "other.example/absent"), 2)
        exactly["capacity"] = {"requests": {each: draw.choice(_ODD_AMOUNTS) for each in names}}
    if draw.random() < 0.2:
        exactly["tolerations"] = [
            {"operator": "Exists", "effect": draw.choice(("NoSchedule", "NoExecute"))}
            | ({"tolerationSeconds": draw.choice((0, 1, 2**40))} if draw.random() < 0.5 else {})
            for _ in range(draw.choice((1, 16)))
        ]
    return exactly


def _constraint(draw: Random, names: list[str]) -> Body:
    name = draw.choice((f"gpu.carina.dev/{draw.choice(_ATTRIBUTES)}", *_QUALIFIED))
    kind = draw.choice(("matchAttribute", "matchAttribute", "distinctAttribute"))
    requests = draw.sample(names, draw.randint(0, len(names)))
    return {"requests": requests, kind: name}


def _parameters(draw: Random) -> Body:
    if draw.random() < 0.4:
        return {
            "apiVersion": "resource.carina.dev/v1alpha1",
            "kind": draw.choice(("GpuConfig", "ShareConfig", "MigDeviceConfig", "NoSuchKind")),
        }
    nested: object = draw.choice(([], "x" * 5_000, "\ud800", 10**300, 10**4_000, -0.0, None))
    for _ in range(draw.choice((1, 10, 200, draw.randint(1, _MOST_LEVELS)))):
        nested = {"a": nested} if draw.random() < 0.5 else [nested]
    return {"apiVersion": "x/v1", "kind": "X", "a": nested}
