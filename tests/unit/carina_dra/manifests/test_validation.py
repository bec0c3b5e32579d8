"""What the API server refuses in an object is found, by the path of the field."""

from typing import Any

import pytest

from carina_dra.manifests.validation import problems
from carina_dra.resource import decode
from tests.samples.resources import EXAMPLES, KINDS, example, put


def found(name: str, path: str, value: object) -> list[tuple[str, str]]:
    """The problems of an example in which a value was replaced."""
    body = example(name)
    put(body, path, value)
    return _problems(body)


def _problems(body: dict[str, Any]) -> list[tuple[str, str]]:
    decoded: Any = decode(KINDS[body["kind"]], body)
    return list(problems(decoded))


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_the_api_server_accepted_has_no_problem(name: str) -> None:
    assert _problems(example(name)) == []


_EXACTLY = {"deviceClassName": "gpu"}


@pytest.mark.parametrize(
    ("exactly", "path", "problem"),
    [
        ({"count": -1}, "count", "is -1; it must be greater than zero"),
        ({"allocationMode": "Half"}, "allocationMode", "is 'Half', not one of ExactCount, All"),
        ({"deviceClassName": ""}, "deviceClassName", "is empty"),
        ({"selectors": [{}]}, "selectors[0]", "lacks cel"),
        (
            {"selectors": [{"cel": {"expression": "device.driver =="}}]},
            "selectors[0].cel.expression",
            "is not valid CEL: ",
        ),
        (
            {"selectors": [{"cel": {"expression": "1"}}]},
            "selectors[0].cel.expression",
            "is not valid CEL: must evaluate to bool",
        ),
        (
            {"selectors": [{"cel": {"expression": " " * 10_241}}]},
            "selectors[0].cel.expression",
            "has more than 10240 bytes",
        ),
        (
            {"selectors": [{"cel": {"expression": "true"}}] * 33},
            "selectors",
            "has 33 entries; at most 32 are allowed",
        ),
        (
            {"tolerations": [{"operator": "Exists", "value": "x"}]},
            "tolerations[0].value",
            "is 'x'; it must be empty for operator Exists",
        ),
        (
            {"derivedAttributes": [{"name": "a", "expression": "{}"}]},
            "derivedAttributes[0].expression",
            "is not valid CEL: ",
        ),
    ],
)
def test_a_request(exactly: dict[str, Any], path: str, problem: str) -> None:
    request = {"name": "r", "exactly": _EXACTLY | exactly}
    [(where, what)] = found("claim-pending", "spec.devices", {"requests": [request]})
    assert where == f"spec.devices.requests[0].exactly.{path}"
    assert what.startswith(problem)


_REQUEST = {"name": "r", "exactly": _EXACTLY}
_OPAQUE = {"driver": "gpu.carina.dev", "parameters": {}}


def _nested(levels: int) -> dict[str, Any]:
    return {"a": _nested(levels - 1)} if levels else {}


@pytest.mark.parametrize(
    ("devices", "path", "problem"),
    [
        ({"requests": [{"name": "r"}]}, "requests[0]", "has neither exactly nor firstAvailable"),
        (
            {"requests": [{"name": "r", "firstAvailable": []}]},
            "requests[0]",
            "has neither exactly nor firstAvailable",
        ),
        ({"requests": [{"name": "", "exactly": _EXACTLY}]}, "requests[0].name", "is empty"),
        (
            {"requests": [_REQUEST, _REQUEST]},
            "requests[1].name",
            "is 'r', as is spec.devices.requests[0].name",
        ),
        (
            {"requests": [{"name": "r", "firstAvailable": [{"name": "s", **_EXACTLY}] * 2}]},
            "requests[0].firstAvailable[1].name",
            "is 's', as is spec.devices.requests[0].firstAvailable[0].name",
        ),
        (
            {
                "requests": [
                    {"name": "r", "firstAvailable": [{"name": "s", **_EXACTLY, "count": -2}]}
                ]
            },
            "requests[0].firstAvailable[0].count",
            "is -2; it must be greater than zero",
        ),
        (
            {"requests": [{**_REQUEST, "name": f"r{index}"} for index in range(33)]},
            "requests",
            "has 33 entries; at most 32 are allowed",
        ),
        (
            {"requests": [_REQUEST], "constraints": [{"requests": ["q"], "matchAttribute": "a/b"}]},
            "constraints[0].requests[0]",
            "is 'q', not a request of the claim; write one of r",
        ),
        (
            {"requests": [_REQUEST], "constraints": [{}]},
            "constraints[0]",
            "has neither matchAttribute nor distinctAttribute",
        ),
        (
            {"requests": [_REQUEST], "constraints": [{"distinctAttribute": "model"}]},
            "constraints[0].distinctAttribute",
            "is 'model', not a name with its domain",
        ),
        (
            {"requests": [_REQUEST], "config": [{"requests": ["r/s"], "opaque": _OPAQUE}]},
            "config[0].requests[0]",
            "is 'r/s', not a request of the claim; write one of r",
        ),
        ({"requests": [_REQUEST], "config": [{}]}, "config[0]", "lacks opaque"),
        (
            {"requests": [_REQUEST], "config": [{"opaque": {**_OPAQUE, "driver": ""}}]},
            "config[0].opaque.driver",
            "is empty",
        ),
        (
            {"config": [{"opaque": {**_OPAQUE, "parameters": {"a": "x" * 10_240}}}]},
            "config[0].opaque.parameters",
            "has more than 10240 bytes",
        ),
        (
            {"config": [{"opaque": {**_OPAQUE, "parameters": _nested(900)}}]},
            "config[0].opaque.parameters",
            "is nested more than 100 levels deep",
        ),
    ],
)
def test_a_claim(devices: dict[str, Any], path: str, problem: str) -> None:
    [(where, what)] = found("claim-pending", "spec.devices", devices)
    assert where == f"spec.devices.{path}"
    assert what.startswith(problem)


def test_a_template_s_claim() -> None:
    request = {"name": "r", "exactly": _EXACTLY | {"count": -1}}
    assert found("template", "spec.spec.devices", {"requests": [request]}) == [
        ("spec.spec.devices.requests[0].exactly.count", "is -1; it must be greater than zero")
    ]


@pytest.mark.parametrize(
    ("name", "path", "value", "where", "problem"),
    [
        (
            "device-class",
            "spec.selectors",
            [{"cel": {"expression": "("}}],
            "spec.selectors[0].cel.expression",
            "is not valid CEL: ",
        ),
        ("device-class", "spec.config", [{}], "spec.config[0]", "lacks opaque"),
        ("slice-of-gpus", "spec.driver", "", "spec.driver", "is empty"),
        ("slice-of-gpus", "spec.pool.name", "", "spec.pool.name", "is empty"),
        (
            "slice-of-gpus",
            "spec.pool.generation",
            -1,
            "spec.pool.generation",
            "is -1; it must not be negative",
        ),
        (
            "slice-of-gpus",
            "spec.pool.resourceSliceCount",
            0,
            "spec.pool.resourceSliceCount",
            "is 0; it must be greater than zero",
        ),
        ("slice-of-gpus", "spec.nodeName", None, "spec", "lacks one of nodeName, nodeSelector"),
        (
            "slice-of-gpus",
            "spec.sharedCounters",
            [{"name": "a", "counters": {}}],
            "spec",
            "has devices and sharedCounters",
        ),
        (
            "slice-of-gpus",
            "spec.devices",
            [{"name": "a"}, {"name": "b"}, {"name": "a"}],
            "spec.devices[2].name",
            "is 'a', as is spec.devices[0].name",
        ),
        (
            "slice-of-gpus",
            "spec.devices",
            [{"name": f"gpu-{index}"} for index in range(129)],
            "spec.devices",
            "has 129 entries; at most 128 are allowed",
        ),
        ("device-taint-rule", "metadata.name", None, "metadata.name", "is missing"),
    ],
)
def test_another_object(name: str, path: str, value: object, where: str, problem: str) -> None:
    [(found_where, what)] = found(name, path, value)
    assert found_where == where
    assert what.startswith(problem)
