"""Words and texts of reasons."""

from typing import get_args

import pytest

from carina_dra.placement.cluster.gpu import GPU
from controller.engine.model.queue import CutOffCause
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
    RefusedByScheduler,
    SearchCut,
    StoppedQueue,
    TooFewDevices,
    TooFewPods,
    TooManyGpus,
    UncountedGpus,
    Undecided,
    Unfair,
    UnknownQueue,
)
from controller.engine.model.resource import DevicesOf, Gpus
from controller.report.waiting import for_tenant, waiting_text, waiting_word

_GPU = DevicesOf("gpu.carina.dev")
_NO_ROOM = NoRoom("t/train-0", 4, (("devices", 4),))
_WORDS: list[tuple[Reason, str]] = [
    (UnknownQueue("q", exists=False), "UnknownQueue"),
    (UnknownQueue("q", exists=True), "QueueHasChildren"),
    (CutOffQueue("q", "above", CutOffCause.MISSING), "QueueCutOff"),
    (ClosedQueue("q"), "QueueClosed"),
    (StoppedQueue("q"), "QueueHeld"),
    (TooFewPods("", 1, 2), "TooFewPods"),
    (BadClaim("t/train-0", "no class"), "BadClaim"),
    (BadVolume("t/train-0", "not found"), "BadVolume"),
    (ExclusiveDevices("t/train-0", "nvidia.com/gpu"), "ExclusiveDevices"),
    (OverLimit("q", _GPU, 3, 2, 2), "OverLimit"),
    (OverQuota("q", _GPU, 3, 2, 2), "OverQuota"),
    (TooManyGpus("q", Gpus(), GPU, 2 * GPU), "TooManyGpus"),
    (UncountedGpus("q"), "UncountedGpus"),
    (_NO_ROOM, "NoRoom"),
    (NoDomain("rack", 3), "NoDomain"),
    (OverFairShare("q", _GPU, 3, 2, 2), "OverFairShare"),
    (NoVictims("reclaim", 0, Unfair()), "NoVictims"),
    (Delayed(10), "EvictionDelayed"),
    (Behind("t/first"), "BehindReservation"),
    (RefusedByScheduler("0/4 nodes are available"), "RefusedByScheduler"),
    (SearchCut("reclaim", 8), "SearchContinues"),
    (DecisionFailed("KeyError", 10), "DecisionFailed"),
    (Undecided(50_000, "pod t/train-0", 10), "Undecided"),
]


@pytest.mark.parametrize(("reason", "word"), _WORDS)
def test_each_reason_has_its_word(reason: Reason, word: str) -> None:
    assert reason.word == word


def test_the_table_has_every_reason() -> None:
    assert {type(reason) for reason, _ in _WORDS} == set(get_args(Reason))


def test_the_first_reason_gives_the_word_and_all_give_the_text() -> None:
    reasons = (_NO_ROOM, OverFairShare("q", _GPU, 3, 2, 2), _NO_ROOM)
    assert waiting_word(reasons) == "NoRoom"
    assert waiting_text(reasons) == (
        "pod t/train-0 has no place on 4 nodes (devices on 4); "
        "fair share of queue q: deviceClass gpu.carina.dev: 2 in use and 2 asked for, of 3"
    )


def test_each_fact_stands_once() -> None:
    reasons = (_NO_ROOM, NoVictims("consolidate", 0, _NO_ROOM), NoVictims("reclaim", 2, _NO_ROOM))
    assert waiting_text(reasons) == (
        "pod t/train-0 has no place on 4 nodes (devices on 4); "
        "moving other pods does not make room (no group may be evicted); "
        "what other queues have to give back does not make room (no plan among 2 candidate groups)"
    )


def test_a_cause_that_stands_nowhere_else_is_told() -> None:
    reasons = (_NO_ROOM, NoVictims("consolidate", 1, TooFewDevices(0, 1)))
    assert waiting_text(reasons).endswith(
        "(no plan among 1 candidate group): only 0 of 1 devices are free"
    )


def test_a_tenant_reads_no_names_of_other_namespaces() -> None:
    reasons = (Behind("secret/job"), Behind("t/first"))
    assert waiting_text(for_tenant(reasons, "t")) == (
        "it would delay a group that holds a reservation; "
        "it would delay group t/first, which holds a reservation"
    )
