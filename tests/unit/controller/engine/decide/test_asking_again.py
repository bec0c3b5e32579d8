"""What has been refused is asked again when a change may help, and not before."""

from dataclasses import replace

import pytest

from controller.engine.model.group import Group
from tests.unit.controller.engine.decide.small import Cluster, group, node, places, pod, queue


def test_a_group_that_goes_to_another_queue_frees_the_limit_of_its_own() -> None:
    first, second = group("first", "narrow"), group("second", "narrow")
    cluster = Cluster(
        node("node", 4),
        queue("narrow", limit=2),
        queue("wide"),
        first,
        pod(first, 2, at="node"),
        second,
        pod(second, 2),
    )
    assert not places(cluster.decide())
    cluster.state.put_group(replace(first, queue="wide"))
    assert places(cluster.decide()) == {"team/second-0": "node"}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (group("low", priority=1), group("low", priority=0)),
        (group("low", preemptible=False), group("low")),
    ],
    ids=["of a lower priority now", "preemptible now"],
)
def test_a_group_that_becomes_a_victim_is_evicted(before: Group, after: Group) -> None:
    high = group("high", priority=1)
    cluster = Cluster(
        node("node", 2),
        queue("queue", quota=2),
        before,
        pod(before, 2, at="node"),
        high,
        pod(high, 2),
    )
    assert not cluster.decide().evictions
    cluster.state.put_group(after)
    assert [one.pod for one in cluster.decide().evictions] == ["team/low-0"]


def test_nobody_asks_again_because_a_group_has_started() -> None:
    runs, waits = group("runs"), group("waits")
    cluster = Cluster(node("node", 2), runs, pod(runs, 2, at="node"), waits, pod(waits, 2))
    cluster.decide()
    cluster.state.put_group(replace(runs, started=990.0))
    assert cluster.decide().steps == 0
