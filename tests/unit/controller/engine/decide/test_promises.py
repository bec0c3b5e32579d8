"""Places that were promised, when not all of the plan has been carried out."""

from dataclasses import replace
from typing import Any

from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Plan
from controller.engine.model.snapshot import Snapshot
from tests.unit.controller.engine.decide.gpu_cluster import (
    CLASS,
    claim,
    gpus,
    group,
    node,
    queue,
    running,
    waiting,
)

_SNAPSHOT = Snapshot(
    now=1000,
    nodes=(node(), node("n2")),
    slices=(gpus(), gpus("n2")),
    classes=(CLASS,),
    queues=(queue("q", limit=1),),
    claims=(claim("q/low", has=("n1/g0",)), claim("q/high")),
    groups=(group("q/low"), group("q/high", priority=1)),
    pods=(running("q/low-0", "q/low", "q/low"), waiting("q/high-0", "q/high", "q/high")),
)
"""A queue with a limit of one GPU, which the less important of its groups has."""


def next_plan(decided: Plan, **changes: Any) -> Plan:
    """The plan of the next cycle, if nothing of the last one has been carried out."""
    return plan(replace(_SNAPSHOT, memory=decided.memory, **changes))


def test_a_promise_is_not_kept_over_the_limit_while_the_victim_stays() -> None:
    decided = plan(_SNAPSHOT)
    assert [each.pod for each in decided.evictions] == ["q/low-0"]

    again = next_plan(decided)

    assert not again.starts
    assert [each.pod for each in again.evictions] == ["q/low-0"]


def test_a_promise_is_kept_when_the_victim_has_gone() -> None:
    claims, pods = (claim("q/low"), claim("q/high")), (_SNAPSHOT.pods[1],)

    again = next_plan(plan(_SNAPSHOT), claims=claims, pods=pods)

    assert [each.pod for each in again.starts] == ["q/high-0"]


def test_a_promise_is_not_kept_over_a_limit_that_was_lowered() -> None:
    again = next_plan(plan(_SNAPSHOT), queues=(queue("q", limit=0),))

    assert not again.starts
    assert "limit of queue q" in str(again.waiting["q/high"][0])


def test_a_promise_is_not_kept_in_a_queue_that_is_gone() -> None:
    again = next_plan(plan(_SNAPSHOT), queues=())

    assert not again.starts
    assert str(again.waiting["q/high"][0]) == "queue q does not exist"
