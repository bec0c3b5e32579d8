"""Free JSON that is nested deeply: users can write 10,000 levels of it."""

from typing import Any

import pytest

from carina_dra.resource import ResourceClaim, decode, encode


def claim(levels: int) -> dict[str, Any]:
    """A claim whose parameters have so many levels."""
    parameters: Any = 1
    for level in range(levels - 1):
        parameters = {"a": parameters} if level % 2 else [parameters, 2]
    opaque = {"driver": "d", "parameters": {"a": parameters}}
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "c", "namespace": "t"},
        "spec": {"devices": {"config": [{"opaque": opaque}]}},
    }


@pytest.mark.parametrize("levels", [1, 2, 200])
def test_usual_parameters_are_read_as_they_are(levels: int) -> None:
    body = claim(levels)
    assert encode(decode(ResourceClaim, body))["spec"] == body["spec"]


@pytest.mark.parametrize("levels", [201, 500, 900])
def test_what_is_too_deep_is_read_as_a_string_so_that_claims_can_be_compared(levels: int) -> None:
    found, same = (decode(ResourceClaim, claim(levels)) for _ in range(2))
    assert found == same
    inner: Any = encode(found)["spec"]["devices"]["config"][0]["opaque"]["parameters"]["a"]
    depth = 1
    while not isinstance(inner, str):
        inner = inner["a"] if isinstance(inner, dict) else inner[0]
        depth += 1
    assert (depth, inner) == (200, "nested too deeply to be read")
