"""Why a group waits, in words, and what would help."""

from typing import Any

import pytest

from carina_dra.placement.cluster.gpu import GPU
from controller.engine.explain import (
    Turn,
    UnknownGroupError,
    explain,
    group_named,
    lines,
    refusal,
    turn_of,
)
from controller.engine.model.group import Group, PodSet
from controller.engine.model.plan import Action, CarriedOver, Eviction, Nomination, Plan, Start
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds
from controller.engine.model.queue import CutOffCause, Queue
from controller.engine.model.reason import (
    BadClaim,
    BadVolume,
    Behind,
    ClosedQueue,
    CutOffQueue,
    DecisionFailed,
    Delayed,
    ExclusiveDevices,
    NoDomain,
    NoRoom,
    NoVictims,
    OverFairShare,
    OverLimit,
    OverQuota,
    Reason,
    SearchCut,
    StoppedQueue,
    TooFewPods,
    TooManyGpus,
    Undecided,
    Unfair,
    UnknownQueue,
    what_helps,
)
from controller.engine.model.resource import Cpu, DevicesOf, Gpus
from controller.engine.model.snapshot import Snapshot
from tests.unit.controller.engine.scene import Scene

_GPUS = DevicesOf("gpu.carina.dev")
_QUEUES = (Queue("company"), Queue("vision", "company"), Queue("speech", "company"))
_SNAPSHOT = Snapshot(
    now=0,
    queues=_QUEUES,
    groups=(Group("a/train", "vision", PodSet("", 2)),),
    pods=(
        Pod("a/train-0", PodNeeds(), Placed("n1"), group="a/train"),
        Pod("a/train-1", PodNeeds(), Pending(), group="a/train"),
        Pod("a/other", PodNeeds(), Pending()),
    ),
)


def plan(**fields: Any) -> Plan:
    defaults = {
        "starts": (),
        "nominations": (),
        "evictions": (),
        "waiting": {},
        "fair_shares": {},
        "memory": CarriedOver(),
        "stale": (),
        "steps": 0,
        "wake": None,
    }
    return Plan(**{**defaults, **fields})


@pytest.mark.parametrize(
    ("reason", "help_"),
    [
        (UnknownQueue("vison", exists=False), "create the queue, or name another one; did you"),
        (UnknownQueue("company", exists=True), "create the queue, or name another one; write one"),
        (ClosedQueue("vision"), "create the pods again with the label of another queue"),
        (StoppedQueue("vision"), "wait until the queue is resumed: carina queue resume vision"),
        (
            CutOffQueue("vision", "company", CutOffCause.MISSING),
            "create queue company, or give the queues below it an",
        ),
        (TooFewPods("", 1, 4), "create 3 more pods, open their scheduling gates, or lower"),
        (BadClaim("a/p", "there is no claim a/c"), "correct the claim, or create what it names"),
        (BadVolume("a/p", "not found"), "correct the claim, or create what it names"),
        (
            ExclusiveDevices("a/p", "nvidia.com/gpu"),
            "use resourceClaims with a ResourceClaimTemplate instead of nvidia.com/gpu in limits",
        ),
        (OverLimit("q", _GPUS, 8, 6, 4), "wait until work of the queue ends, or raise its limit"),
        (OverLimit("q", _GPUS, 8, 0, 9), "ask for at most 8, or raise the limit; it never starts"),
        (OverLimit("q", Cpu(), 8000, 7500, 1000), "wait until work of the queue ends, or raise"),
        (OverQuota("q", _GPUS, 8, 8, 1), "make it preemptible, or raise the quota of the queue to"),
        (
            TooManyGpus("q", Gpus(), GPU, 2 * GPU),
            "make it preemptible, raise the quota, or ask for",
        ),
        (OverFairShare("q", _GPUS, 8, 8, 4), "wait until something is free, or raise the quota"),
        (NoRoom("a/p", 0, ()), "add nodes; there are none that it could run on"),
        (NoRoom("a/p", 4, (("devices", 4),)), "wait until devices are free, add nodes, or ask"),
        (NoRoom("a/p", 4, (("cpu", 3), ("devices", 1))), "wait until cpu is free, add nodes, or"),
        (NoRoom("a/p", 1, (("taint gpu", 1),)), "add a toleration for taint gpu"),
        (NoRoom("a/p", 1, (("node selector", 1),)), "add nodes that fit, or change the pod: node"),
        (NoDomain("rack", 3), "allow a wider level than rack, prefer it instead, or wait for a"),
        (NoVictims("reclaim", 0, Unfair()), "wait until other work ends; none may be evicted for"),
        (NoVictims("reclaim", 3, Unfair()), "wait until other work ends, or ask for less"),
        (Delayed(60), "wait until then, or lower its preemption delay"),
        (Behind("a/big"), "declare a run time that ends before the reservation, or wait"),
        (SearchCut("reclaim", 5), "nothing to do: the next cycle goes on"),
        (DecisionFailed("KeyError", 60), "change what is unusual about it"),
        (Undecided(50_000, "pod a/b", 60), "ask for less at once"),
    ],
)
def test_each_reason_has_something_that_helps(reason: Reason, help_: str) -> None:
    assert what_helps(reason, _QUEUES).startswith(help_)


def test_amounts_are_written_as_in_the_queue() -> None:
    assert what_helps(OverLimit("q", Cpu(), 8000, 7500, 1000), ()).endswith("to 8500m")
    assert what_helps(OverLimit("q", _GPUS, 8, 6, 4), ()).endswith("to 10")


def test_a_group_that_waits_has_its_reasons_once() -> None:
    reason = NoRoom("a/train-1", 2, (("devices", 2),))
    found = explain(_SNAPSHOT, plan(waiting={"a/train": (reason, reason)}), "a/train")
    assert found.waits
    assert list(lines(found)) == [
        "a/train: queue vision, pods: 1 running, 1 waiting",
        "it waits for more, since",
        "- pod a/train-1 has no place on 2 nodes (devices on 2)",
        "  what helps: wait until devices are free, add nodes, or ask for fewer or other devices",
    ]


def test_a_group_that_starts_says_where() -> None:
    found = explain(
        _SNAPSHOT,
        plan(starts=(Start("a/train-1", "n2", ()), Start("a/other", "n1", ()))),
        "a/train",
    )
    assert not found.waits
    assert list(lines(found))[1:] == ["pod a/train-1 starts on node n2 now"]


def test_a_group_with_a_promise_says_what_it_waits_for() -> None:
    found = explain(_SNAPSHOT, plan(nominations=(Nomination("a/train-1", "n2", ()),)), "a/train")
    assert found.waits
    assert list(lines(found))[1:] == [
        "pod a/train-1 starts on node n2 as soon as pods that are being evicted have left it"
    ]


def test_a_group_that_is_evicted_says_for_whom() -> None:
    eviction = Eviction("a/train-0", "n1", Action.RECLAIM, "a/tune", 30)
    found = explain(_SNAPSHOT, plan(evictions=(eviction,)), "a/train")
    assert list(lines(found))[1:] == ["pod a/train-0 is evicted (reclaim) for group a/tune"]


def test_a_group_that_has_all_says_so() -> None:
    assert list(lines(explain(_SNAPSHOT, plan(), "a/train")))[1:] == ["it has all that it asks for"]


def test_an_unknown_group_is_refused_with_the_one_next_to_it() -> None:
    with pytest.raises(
        UnknownGroupError, match="there is no group 'a/trian'; did you mean a/train"
    ):
        explain(_SNAPSHOT, plan(), "a/trian")


def test_the_turn_of_a_group_is_among_those_of_its_queue_that_wait() -> None:
    scene = Scene().node("n", 1).queue("q").queue("other").runs("runs", "n")
    scene.waits("late", created=2).waits("early", created=1).waits("urgent", created=3, priority=1)
    scene.waits("elsewhere", queue="other")
    state = scene.state()
    assert turn_of(state, "urgent") == Turn(1, 3)
    assert turn_of(state, "early") == Turn(2, 3)
    assert turn_of(state, "late") == Turn(3, 3)
    assert turn_of(state, "runs") is None


def test_a_group_is_found_by_its_key_a_pod_or_its_owner() -> None:
    snapshot = Scene().waits("t/train").waits("t/job/eval").pod("t/train", name="x").snapshot()
    assert group_named(snapshot, "t/train") == "t/train"
    assert group_named(snapshot, "t/x") == "t/train"
    assert group_named(snapshot, "t/eval") == "t/job/eval"


@pytest.mark.parametrize(
    ("name", "error"),
    [
        (
            "t/web",
            "pod t/web names no queue, so kube-scheduler alone decides on it; see its Events",
        ),
        ("t/eval", "t/eval names several groups; write t/job/eval or t/jobset/eval"),
        ("t/trian", "there is no group or pod 't/trian'; did you mean t/train?"),
    ],
)
def test_a_name_of_no_group_is_an_error(name: str, error: str) -> None:
    scene = Scene().waits("t/train").waits("t/job/eval").waits("t/jobset/eval")
    with pytest.raises(UnknownGroupError) as raised:
        group_named(scene.pod(None, name="web").snapshot(), name)
    assert str(raised.value) == error


def test_a_refused_group_is_found_by_its_pods_and_says_why() -> None:
    snapshot = Scene().waits("t/train").pod("t/lost", name="x").snapshot()
    refused = {"t/lost": "PodGroup lost does not exist; create it"}
    assert group_named(snapshot, "t/x", refused) == "t/lost"
    assert group_named(snapshot, "t/lost", refused) == "t/lost"
    assert list(lines(refusal(snapshot, "t/lost", refused["t/lost"]))) == [
        "t/lost: pods: 1 waiting",
        "it is refused: PodGroup lost does not exist; create it",
    ]
