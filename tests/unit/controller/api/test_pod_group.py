"""PodGroup: what is written, as the engine has it."""

import math
from typing import Any

import pytest

from carina_dra.resource.errors import BadValueError
from controller.api.pod_group import DeclaredGroup, read_pod_group
from controller.engine.model.group import PodSet, SubGroup, SubGroups, TopologyConstraint


def _read(spec: Any, name: str = "train") -> DeclaredGroup:
    return read_pod_group(
        {
            "apiVersion": "scheduling.carina.dev/v1alpha1",
            "kind": "PodGroup",
            "metadata": {"namespace": "team", "name": name},
            "spec": spec,
        }
    )


@pytest.mark.parametrize(
    ("spec", "root"),
    [
        ({"minCount": 4}, PodSet("", 4)),
        ({"minCount": 0}, PodSet("", 0)),
        (
            {
                "minCount": 4,
                "topologyConstraint": {"topology": "racks", "preferredLevel": "example.com/rack"},
            },
            PodSet("", 4, TopologyConstraint("racks", None, "example.com/rack")),
        ),
        (
            {"subGroups": [{"name": "workers", "minCount": 8}, {"name": "driver", "minCount": 1}]},
            SubGroups("", (PodSet("workers", 8), PodSet("driver", 1)), 2),
        ),
        (
            {
                "minSubGroups": 1,
                "subGroups": [
                    {"name": "decode", "parent": "replica-0", "minCount": 2},
                    {"name": "replica-0"},
                    {"name": "prefill", "parent": "replica-0", "minCount": 1},
                    {"name": "replica-1", "minCount": 3},
                ],
            },
            SubGroups(
                "",
                (
                    SubGroups("replica-0", (PodSet("decode", 2), PodSet("prefill", 1)), 2),
                    PodSet("replica-1", 3),
                ),
                1,
            ),
        ),
    ],
)
def test_the_spec_is_a_tree_of_pod_sets(spec: Any, root: SubGroup) -> None:
    assert _read(spec).root == root


def test_times_are_in_seconds() -> None:
    group = _read(
        {
            "minCount": 1,
            "stalenessGracePeriod": "5m",
            "preemptionDelay": "90s",
            "runTime": "1h30m",
        }
    )

    assert (group.staleness_grace, group.preemption_delay, group.run_time) == (300, 90, 5400)


def test_a_group_can_stay_stale_for_ever() -> None:
    assert _read({"minCount": 1, "stalenessGracePeriod": "never"}).staleness_grace == math.inf


def test_a_group_is_preemptible_unless_it_says_otherwise() -> None:
    assert _read({"minCount": 1}).preemptible
    assert not _read({"minCount": 1, "preemptible": False}).preemptible


def test_the_status_is_not_looked_at() -> None:
    body = {
        "apiVersion": "scheduling.carina.dev/v1alpha1",
        "kind": "PodGroup",
        "metadata": {"namespace": "team", "name": "train"},
        "spec": {"minCount": 1},
        "status": {"phase": "OfANewerController"},
    }
    assert read_pod_group(body).key == "team/train"


def _parts(*parts: Any) -> dict[str, Any]:
    return {"subGroups": list(parts)}


_LEAF = {"name": "a", "minCount": 1}


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        ({}, "write either minCount, if all pods are alike, or subGroups"),
        ({"minCount": 1, **_parts(_LEAF)}, "write either minCount, if all pods are alike,"),
        ({"minCount": -1}, "is -1, not an integer from 0 to 100000"),
        (_parts(), "has 0 items; write 1 to 64"),
        (_parts(_LEAF, _LEAF), "has two items with the same name; rename one of them"),
        (_parts({"name": "A", "minCount": 1}), "is 'A', not the name of a sub-group"),
        (_parts({"name": "a"}), "sub-group a: write minCount"),
        (_parts({**_LEAF, "parent": "b"}), "sub-group a: parent b is not the name of another"),
        (_parts({**_LEAF, "parent": "a"}), "sub-group a: is below more than 2 others"),
        (
            _parts({"name": "a", "parent": "b"}, {"name": "b", "parent": "a"}),
            "sub-group a: is below more than 2 others",
        ),
        (
            _parts(_LEAF, {**_LEAF, "name": "b", "parent": "a"}),
            "sub-group a: has sub-groups below it; write minSubGroups, not minCount",
        ),
        (
            _parts({"name": "a", "minSubGroups": 2}, {**_LEAF, "name": "b", "parent": "a"}),
            "sub-group a: minSubGroups must not be more than 1",
        ),
        ({"minSubGroups": 2, **_parts(_LEAF)}, "minSubGroups must not be more than the number"),
        ({"minCount": 1, "topologyConstraint": {"topology": "t"}}, "write requiredLevel,"),
        ({"minCount": 1, "runTime": "long"}, "is 'long', not a duration such as 1h30m"),
        ({"minCount": 1, "queue": "q"}, "is not a field of PodGroupSpec"),
    ],
)
def test_a_mistake_is_refused_with_its_remedy(spec: Any, problem: str) -> None:
    with pytest.raises(BadValueError) as refused:
        _read(spec)
    assert refused.value.problem.startswith(problem)


def test_a_name_that_is_no_label_is_refused() -> None:
    with pytest.raises(BadValueError, match="has 64 characters; write 1 to 63"):
        _read({"minCount": 1}, name="a" * 64)
