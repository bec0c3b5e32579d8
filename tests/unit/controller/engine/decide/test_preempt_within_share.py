"""What a preemption may take for its queue."""

from dataclasses import replace

from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Plan
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import OverFairShare
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

_NOWHERE = PodNeeds(cpu=100, node_selector=(("on", "no node"),))


def _preempts(quota: int) -> Plan:
    """Of three GPUs, one is free, and one has a job that the waiting one may preempt for two."""
    return plan(
        Snapshot(
            now=100,
            nodes=(node("n1"),),
            slices=(gpus("n1", 3),),
            classes=(CLASS,),
            queues=(queue("ours", quota=quota), queue("theirs", quota=3 - quota)),
            claims=(
                claim("a/small", has=("n1/g0",)),
                claim("a/other", has=("n1/g1",)),
                claim("a/large", 2),
                claim("a/missing"),
            ),
            groups=(
                group("a/small", "ours"),
                group("a/other", "theirs"),
                replace(group("a/large", "ours"), priority=10),
                group("a/missing", "theirs"),
            ),
            pods=(
                running("a/small-0", "a/small", "a/small"),
                running("a/other-0", "a/other", "a/other"),
                waiting("a/large-0", "a/large", "a/large"),
                waiting("a/missing-0", "a/missing", "a/missing", needs=_NOWHERE),
            ),
        )
    )


def test_a_preemption_takes_what_is_free_beside_its_victims_within_the_fair_share() -> None:
    decided = _preempts(quota=2)
    assert [one.pod for one in decided.evictions] == ["a/small-0"]
    assert [one.pod for one in decided.nominations] == ["a/large-0"]


def test_it_takes_no_more_than_the_fair_share_which_others_would_reclaim() -> None:
    decided = _preempts(quota=1)
    assert decided.is_empty
    assert not decided.nominations
    assert isinstance(decided.waiting["a/large"][-1], OverFairShare)
