"""Whether two answers to a case of the vectors are the same (rules of the conformance vectors)."""

import json
from collections.abc import Iterable, Mapping
from typing import Any

from carina_dra.quantity import Quantity

_INVALID_POOLS = "invalid resource pools were encountered"


def difference(expected: Mapping[str, Any], actual: Mapping[str, Any]) -> str | None:
    """What is different in `actual`; None if nothing is that matters.

    Errors are the same if both are of the node, or both are not.
    """
    if "error" in expected or "error" in actual:
        same = ("error" in expected, expected.get("nodeLocal")) == (
            "error" in actual,
            actual.get("nodeLocal"),
        )
        return None if same else f"expected {_kind(expected)}, got {_kind(actual)}"
    wanted = [_normal(each) for each in expected.get("allocations") or ()]
    given = [_normal(each) for each in actual.get("allocations") or ()]
    if wanted == given:
        return None
    return f"expected {json.dumps(wanted)}, got {json.dumps(given)}"


def expected_of(vector: Mapping[str, Any]) -> dict[str, Any]:
    """The answer that a vector expects."""
    error = vector.get("expectedError")
    if error:
        return {"error": error, "nodeLocal": _INVALID_POOLS in error}
    allocations = vector.get("expectedAllocations")
    return {"allocations": allocations} if allocations else {"unsatisfiable": True}


def _kind(answer: Mapping[str, Any]) -> str:
    if "error" in answer:
        where = "of the node" if answer.get("nodeLocal") else "for the pod"
        return f"the error {where} {answer['error']!r}"
    return f"an answer: {json.dumps(answer)}"


def _normal(allocation: Mapping[str, Any]) -> dict[str, Any]:
    devices = allocation.get("devices") or {}
    selector = allocation.get("nodeSelector") or {}
    return {
        "results": _sorted(_result(each) for each in devices.get("results") or ()),
        "config": _sorted(_without_empty(each) for each in devices.get("config") or ()),
        "nodes": _sorted(
            {name: _sorted(map(_requirement, each)) for name, each in term.items() if each}
            for term in selector.get("nodeSelectorTerms") or ()
        ),
    }


def _result(result: Mapping[str, Any]) -> dict[str, Any]:
    normal = _without_empty(result)
    if "shareID" in normal:
        normal["shareID"] = "any"
    if "consumedCapacity" in normal:
        normal["consumedCapacity"] = {
            name: Quantity.parse(text).nanos for name, text in normal["consumedCapacity"].items()
        }
    return normal


def _requirement(requirement: Mapping[str, Any]) -> dict[str, Any]:
    return {**requirement, "values": sorted(requirement.get("values") or ())}


def _without_empty(value: Mapping[str, Any]) -> dict[str, Any]:
    return {name: each for name, each in value.items() if each not in (None, [], {}, False)}


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=lambda each: json.dumps(each, sort_keys=True))
