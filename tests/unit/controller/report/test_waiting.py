"""Words and texts of reasons."""

from typing import get_args

import pytest

from controller.model.reason import (
    BadClaim,
    Behind,
    CutOffQueue,
    Delayed,
    NoDomain,
    NoRoom,
    NoVictims,
    OverFairShare,
    OverLimit,
    OverQuota,
    Reason,
    SearchCut,
    TooFewPods,
    UnknownQueue,
)
from controller.model.resource import DevicesOf
from controller.report.waiting import reason_word, waiting_text, waiting_word

_GPU = DevicesOf("gpu.carina.dev")
_NO_ROOM = NoRoom("t/train-0", 4, (("devices", 4),))
_WORDS: list[tuple[Reason, str]] = [
    (UnknownQueue("q", exists=False), "UnknownQueue"),
    (UnknownQueue("q", exists=True), "QueueHasChildren"),
    (CutOffQueue("q", "above"), "QueueCutOff"),
    (TooFewPods("", 1, 2), "TooFewPods"),
    (BadClaim("t/train-0", "no class"), "BadClaim"),
    (OverLimit("q", _GPU, 3, 2, 2), "OverLimit"),
    (OverQuota("q", _GPU, 3, 2, 2), "OverQuota"),
    (_NO_ROOM, "NoRoom"),
    (NoDomain("rack", 3), "NoDomain"),
    (OverFairShare("q", _GPU, 3, 2, 2), "OverFairShare"),
    (NoVictims("reclaim", 0, "none"), "NoVictims"),
    (Delayed(10), "EvictionDelayed"),
    (Behind("t/first"), "BehindReservation"),
    (SearchCut("reclaim", 8), "SearchContinues"),
]


@pytest.mark.parametrize(("reason", "word"), _WORDS)
def test_each_reason_has_its_word(reason: Reason, word: str) -> None:
    assert reason_word(reason) == word


def test_the_table_has_every_reason() -> None:
    assert {type(reason) for reason, _ in _WORDS} == set(get_args(Reason))


def test_the_first_reason_gives_the_word_and_all_give_the_text() -> None:
    reasons = (_NO_ROOM, OverFairShare("q", _GPU, 3, 2, 2), _NO_ROOM)
    assert waiting_word(reasons) == "NoRoom"
    assert waiting_text(reasons) == (
        "pod t/train-0 has no place on 4 nodes (devices on 4); "
        "fair share of queue q: deviceClass gpu.carina.dev: 2 in use and 2 asked for, of 3"
    )
