"""What queues forbid: limits and, for what is not preemptible, quotas, at every level."""

from typing import Any

import pytest

from controller.decide.capacity import balance, excess, refusal
from controller.model.reason import OverLimit, OverQuota
from tests.unit.controller.scene import GPU, Scene, gpus_of


def _scene(top: dict[str, Any], leaf: dict[str, Any]) -> Scene:
    """A queue q below top, of which two preemptible GPUs and one other are in use."""
    scene = Scene().node("n", 8).queue("top", **top).queue("q", "top", **leaf)
    return scene.runs("soft", "n", gpus=2).runs("hard", "n", preemptible=False)


NO: dict[str, Any] = {"quota": None}


@pytest.mark.parametrize("level", ["top", "q"])
@pytest.mark.parametrize(
    ("entitlement", "preemptible", "asked", "kind"),
    [
        ({"limit": 5}, True, 2, None),
        ({"limit": 5}, True, 3, OverLimit),
        ({"limit": 5, "quota": 9}, False, 3, OverLimit),
        ({"limit": None}, True, 99, None),
        ({"limit": 0}, True, 1, OverLimit),
        ({"quota": 3}, False, 2, None),
        ({"quota": 3}, False, 3, OverQuota),
        ({"quota": 3}, True, 3, None),
        ({"quota": None}, False, 99, None),
        ({"quota": 0}, False, 1, OverQuota),
        ({"limit": 1, "quota": 0}, False, 0, None),
    ],
)
def test_every_queue_on_the_way_up_has_to_let_a_group_have_more(
    level: str, entitlement: dict[str, Any], preemptible: bool, asked: int, kind: type | None
) -> None:
    top, leaf = (entitlement, NO) if level == "top" else (NO, entitlement)
    found = refusal(_scene(top, leaf).state(), "q", (asked,), preemptible=preemptible)
    assert (found and type(found)) is kind
    if found is not None:
        assert (found.queue, found.asked) == (level, asked)


def test_a_limit_counts_all_that_is_in_use() -> None:
    state = _scene(NO, {"limit": 3}).state()
    assert refusal(state, "q", (1,), preemptible=True) == OverLimit("q", GPU, 3, 3, 1)


def test_a_quota_counts_what_is_not_preemptible() -> None:
    state = _scene(NO, {"quota": 1}).state()
    assert refusal(state, "q", (1,), preemptible=False) == OverQuota("q", GPU, 1, 1, 1)


def test_the_lowest_queue_that_forbids_is_the_reason() -> None:
    found = refusal(_scene({"limit": 0}, {"limit": 0}).state(), "q", (1,), preemptible=True)
    assert found == OverLimit("q", GPU, 0, 3, 1)


class TestExcess:
    """What has been exceeded, though what was asked for did not exceed it."""

    @pytest.mark.parametrize(
        ("entitlement", "preemptible", "expected"),
        [
            ({"limit": 5, "quota": 9}, True, None),
            ({"limit": 4, "quota": 9}, True, OverLimit("q", GPU, 4, 3, 2)),
            ({"limit": 4, "quota": 9}, False, OverLimit("q", GPU, 4, 3, 2)),
            ({"quota": 3}, False, None),
            ({"quota": 2}, False, OverQuota("q", GPU, 2, 1, 2)),
            ({"quota": 2}, True, None),
            ({"quota": None}, False, None),
        ],
    )
    def test_by_what_was_got(
        self, entitlement: dict[str, Any], preemptible: bool, expected: object
    ) -> None:
        scene = _scene(NO, entitlement).waits("new", gpus=2, preemptible=preemptible)
        state = scene.state()
        before = balance(state, "q")
        state.place("t/new-0", "n", [("t/new-0", gpus_of("n", 6, 7))])
        assert excess(state, before) == expected

    def test_a_queue_above_may_be_the_one_that_is_exceeded(self) -> None:
        state = _scene({"limit": 3}, NO).waits("new").state()
        before = balance(state, "q")
        state.place("t/new-0", "n", [("t/new-0", gpus_of("n", 6))])
        assert excess(state, before) == OverLimit("top", GPU, 3, 3, 1)

    def test_what_was_exceeded_before_is_no_reason(self) -> None:
        state = _scene(NO, {"limit": 1, "quota": 0}).state()
        assert excess(state, balance(state, "q")) is None
