"""Objects of resource.k8s.io/v1 survive being read and written, whatever is in them.

`data/resource_fields.txt` lists every field of the API's Go types (k8s.io/api v0.37.0,
resource/v1/types.go), as `Type.jsonName`, the types by our names for them.
"""

from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import carina_dra.resource as api
from carina_dra.quantity import Quantity
from carina_dra.resource.attribute import lookup

FIELDS = (Path(__file__).parent / "data" / "resource_fields.txt").read_text().split()

CLAIM: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceClaim",
    "metadata": {
        "name": "train",
        "namespace": "team-a",
        "uid": "0b6c",
        "resourceVersion": "7",
        "creationTimestamp": "2026-11-20T12:00:00Z",
        "managedFields": [{"manager": "kubectl", "fieldsV1": {"f:spec": {}}}],
    },
    "spec": {
        "devices": {
            "requests": [
                {
                    "name": "big",
                    "exactly": {
                        "deviceClassName": "gpu.carina.dev",
                        "allocationMode": "All",
                        "adminAccess": False,
                        "selectors": [{"cel": {"expression": "true"}}],
                        "capacity": {"requests": {"memory": "40Gi"}},
                    },
                },
                {
                    "name": "any",
                    "firstAvailable": [
                        {
                            "name": "two",
                            "deviceClassName": "small",
                            "allocationMode": "ExactCount",
                            "count": 2,
                            "tolerations": [{"key": "k", "operator": "Exists"}],
                        }
                    ],
                },
            ],
            "constraints": [{"matchAttribute": "resource.kubernetes.io/numaNode"}],
            "config": [{"opaque": {"driver": "d", "parameters": {"x": [1, {"y": None}]}}}],
        }
    },
    "status": {
        "allocation": {
            "devices": {
                "results": [
                    {
                        "request": "any/two",
                        "driver": "d",
                        "pool": "n1",
                        "device": "gpu-0",
                        "shareID": "5f1c",
                        "consumedCapacity": {"memory": "40Gi"},
                    }
                ]
            },
            "nodeSelector": {
                "nodeSelectorTerms": [
                    {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}
                ]
            },
            "allocationTimestamp": "2026-11-20T12:00:01Z",
        },
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "u"}],
    },
}
SLICE: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "ResourceSlice",
    "metadata": {"name": "s"},
    "spec": {
        "driver": "d",
        "pool": {"name": "n1", "generation": 0, "resourceSliceCount": 1},
        "allNodes": True,
        "devices": [
            {
                "name": "gpu-0",
                "attributes": {
                    "index": {"int": 0},
                    "ecc": {"bool": False},
                    "model": {"string": "H100"},
                    "driverVersion": {"version": "550.163.1"},
                    "numa": {"ints": [0, 1]},
                    "later": {"complex": [1, 2]},
                },
                "capacity": {
                    "memory": {
                        "value": "80Gi",
                        "requestPolicy": {
                            "default": "1Gi",
                            "validRange": {"min": "1Gi", "step": "1Mi"},
                        },
                    }
                },
                "consumesCounters": [{"counterSet": "g", "counters": {"gpu": {"value": "1"}}}],
                "taints": [
                    {"key": "k", "effect": "NoSchedule", "timeAdded": "2026-01-01T00:00:00Z"}
                ],
                "allowMultipleAllocations": True,
            }
        ],
    },
}
CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
    "spec": {"extendedResourceName": "nvidia.com/gpu", "selectors": [{"cel": {"expression": "1"}}]},
}
OBJECTS: list[tuple[type, dict[str, Any]]] = [
    (api.ResourceClaim, CLAIM),
    (api.ResourceSlice, SLICE),
    (api.DeviceClass, CLASS),
]


def _structs() -> dict[str, Any]:
    found = [getattr(api, name) for name in api.__all__]
    return {cls.__name__: cls for cls in found if isinstance(cls, type) and is_dataclass(cls)}


def _json_names(cls: Any) -> set[str]:
    names: set[str] = set()
    for each in fields(cls):
        codec = each.metadata.get("inline")
        head, *rest = each.name.split("_")
        own = each.metadata.get("json") or head + "".join(part.capitalize() for part in rest)
        names |= set(codec.keys) if codec else {own}
    return names


@pytest.mark.parametrize(("kind", "body"), OBJECTS, ids=lambda each: getattr(each, "__name__", ""))
def test_what_is_read_is_written_again(kind: type, body: dict[str, Any]) -> None:
    assert api.encode(api.decode(kind, body)) == body


@pytest.mark.parametrize(
    "path",
    [
        ("spec",),
        ("spec", "devices"),
        ("spec", "devices", "requests", 0),
        ("spec", "devices", "requests", 0, "exactly"),
        ("status", "allocation", "devices", "results", 0),
        ("metadata",),
    ],
    ids=str,
)
def test_fields_of_a_newer_api_survive_a_change(path: tuple[str | int, ...]) -> None:
    body = _copy(CLAIM)
    target = body
    for step in path:
        target = target[step]
    target["fromTheFuture"] = {"a": [1]}
    claim = api.decode(api.ResourceClaim, body)
    changed = api.encode(replace(claim, metadata=replace(claim.metadata, labels={"l": "v"})))
    assert changed == body | {"metadata": body["metadata"] | {"labels": {"l": "v"}}}


def _copy(body: Any) -> Any:
    if isinstance(body, dict):
        return {key: _copy(value) for key, value in body.items()}
    return [_copy(each) for each in body] if isinstance(body, list) else body


@pytest.mark.parametrize(
    ("path", "value", "problem"),
    [
        (("spec", "driver"), 5, "spec.driver: is 5, not a string"),
        (("spec", "pool", "generation"), "1", "spec.pool.generation: is '1', not an integer"),
        (("spec", "nodeName"), "n", "spec: has allNodes and nodeName, not exactly one of"),
        (("spec", "pool"), {}, "spec.pool: lacks generation, name, resource_slice_count"),
        (
            ("spec", "devices", 0, "taints", 0, "effect"),
            "Maybe",
            "spec.devices[0].taints[0].effect: is 'Maybe', not one of NoExecute, NoSchedule, None",
        ),
        (
            ("spec", "devices", 0, "capacity", "memory", "value"),
            "80GB",
            "spec.devices[0].capacity[memory].value: '80GB' is not a quantity",
        ),
        (("kind",), "Pod", "kind is 'Pod', not ResourceSlice"),
    ],
    ids=lambda each: ".".join(map(str, each)) if isinstance(each, tuple) else "",
)
def test_what_is_wrong_is_named(path: tuple[str | int, ...], value: object, problem: str) -> None:
    body = _copy(SLICE)
    target = body
    for step in path[:-1]:
        target = target[step]
    target[path[-1]] = value
    with pytest.raises(api.DecodeError) as caught:
        api.decode(api.ResourceSlice, body)
    assert str(caught.value).startswith(f"ResourceSlice s: {problem}")


@pytest.mark.parametrize("name", FIELDS)
def test_every_field_of_the_api_is_known(name: str) -> None:
    struct, _, json = name.partition(".")
    assert json in _json_names(_structs()[struct])


def test_unions_are_types_of_their_own() -> None:
    device = api.decode(api.ResourceSlice, SLICE).spec.devices[0]
    assert device.attributes["model"] == api.StringAttribute("H100")
    assert isinstance(device.attributes["later"], api.UnknownAttribute)
    assert device.capacity["memory"].value == Quantity.of(80 * 2**30)
    request = api.decode(api.ResourceClaim, CLAIM).spec.devices.requests[0]
    assert isinstance(request.wants, api.Exactly)
    assert request.wants.request.mode == api.All()


@pytest.mark.parametrize(
    ("name", "found"),
    [("gpu.example.com/model", "full"), ("gpu.example.com/kind", "bare"), ("other/kind", None)],
)
def test_a_name_without_domain_is_in_the_drivers(name: str, found: str | None) -> None:
    named = {"gpu.example.com/model": "full", "model": "bare", "kind": "bare"}
    assert lookup(named, name, "gpu.example.com") == found
