"""Queue: who may use it, and what only the controller looks at."""

from typing import Any

import pytest

from carina_dra.resource.errors import BadValueError
from controller.api.queue import DeclaredQueue, read_declared_queue


def _queue(name: str = "research", **spec: Any) -> DeclaredQueue:
    return read_declared_queue(
        {
            "apiVersion": "scheduling.carina.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
            "status": {"groups": {"pending": 1}},
        }
    )


def _requirement(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"key": key, "operator": operator, **({"values": list(values)} if values else {})}


def _selector(*requirements: Any, **labels: str) -> dict[str, Any]:
    return {"selector": {"matchLabels": labels, "matchExpressions": list(requirements)}}


@pytest.mark.parametrize(
    ("namespaces", "allowed"),
    [
        ({"names": ["team"]}, True),
        ({"names": ["other"]}, False),
        (_selector(), True),
        ({"selector": {}}, True),
        (_selector(tier="a"), True),
        (_selector(tier="b"), False),
        (_selector(tier="a", zone="x"), False),
        (_selector(_requirement("tier", "In", "a", "b")), True),
        (_selector(_requirement("tier", "In", "b")), False),
        (_selector(_requirement("zone", "In", "x")), False),
        (_selector(_requirement("tier", "NotIn", "b")), True),
        (_selector(_requirement("tier", "NotIn", "a")), False),
        (_selector(_requirement("zone", "NotIn", "x")), True),
        (_selector(_requirement("tier", "Exists")), True),
        (_selector(_requirement("zone", "Exists")), False),
        (_selector(_requirement("zone", "DoesNotExist")), True),
        (_selector(_requirement("tier", "DoesNotExist")), False),
        ({"names": ["team"], **_selector(tier="b")}, True),
        ({"names": ["other"], **_selector(tier="a")}, True),
    ],
)
def test_a_namespace_is_allowed_by_its_name_or_its_labels(namespaces: Any, allowed: bool) -> None:
    read = _queue(namespaces=namespaces).namespaces
    assert read is not None
    assert read.allows("team", {"tier": "a"}) == allowed


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({"parent": "research"}, "spec.parent is the queue itself; write another queue"),
        (
            {"resources": [{"deviceClass": "gpu.carina.dev", "quota": 8, "limit": 4}]},
            "spec.resources: the quota of deviceClass gpu.carina.dev is more than its limit",
        ),
        ({"namespaces": {}}, "write names, selector or both"),
        ({"priorities": {}}, "priorities: write min, max or both"),
        ({"priorities": {"min": 2, "max": 1}}, "priorities: write min, max or both"),
        ({"namespaces": {"names": []}}, "has 0 items; write 1 to 256"),
        ({"namespaces": {"names": ["A"]}}, "is 'A', not the name of a namespace"),
        (
            {"namespaces": _selector(_requirement("tier", "In"))},
            "values: write at least one with In and NotIn",
        ),
    ],
)
def test_a_mistake_is_refused_with_its_remedy(spec: Any, problem: str) -> None:
    with pytest.raises(BadValueError) as refused:
        _queue(**spec)
    assert refused.value.problem.startswith(problem)
