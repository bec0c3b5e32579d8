"""What queues forbid: limits and, for what is not preemptible, quotas, at every level."""

from typing import Any

import pytest

from controller.engine.decide.queues.capacity import balance, excess, refusal
from controller.engine.model.reason import OverLimit, OverQuota
from controller.engine.state.queue_tree import LOST, ROOT
from tests.unit.controller.engine.scene import GPU, Scene, gpus_of, started


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
    found = refusal(_scene(top, leaf).state().occupancy, "q", (asked,), preemptible=preemptible)
    assert (found and type(found)) is kind
    if found is not None:
        assert (found.queue, found.asked) == (level, asked)


def test_a_limit_counts_all_that_is_in_use() -> None:
    state = _scene(NO, {"limit": 3}).state()
    assert refusal(state.occupancy, "q", (1,), preemptible=True) == OverLimit("q", GPU, 3, 3, 1)


def test_a_quota_counts_what_is_not_preemptible() -> None:
    state = _scene(NO, {"quota": 1}).state()
    assert refusal(state.occupancy, "q", (1,), preemptible=False) == OverQuota("q", GPU, 1, 1, 1)


def test_the_lowest_queue_that_forbids_is_the_reason() -> None:
    found = refusal(
        _scene({"limit": 0}, {"limit": 0}).state().occupancy, "q", (1,), preemptible=True
    )
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
        before = balance(state.occupancy, "q")
        state.occupancy.place("t/new-0", "n", [("t/new-0", gpus_of("n", 6, 7))])
        assert excess(state.occupancy, before) == expected

    def test_a_queue_above_may_be_the_one_that_is_exceeded(self) -> None:
        state = _scene({"limit": 3}, NO).waits("new").state()
        before = balance(state.occupancy, "q")
        state.occupancy.place("t/new-0", "n", [("t/new-0", gpus_of("n", 6))])
        assert excess(state.occupancy, before) == OverLimit("top", GPU, 3, 3, 1)

    def test_what_was_exceeded_before_is_no_reason(self) -> None:
        state = _scene(NO, {"limit": 1, "quota": 0}).state()
        assert excess(state.occupancy, balance(state.occupancy, "q")) is None


class TestClaimOfSeveralQueues:
    """A pod of queue `other`, which has room for it, has a claim of four GPUs."""

    def _scene(self, limit: int | None, *, preemptible: bool) -> Scene:
        scene = Scene().node("n", 8).queue("q", quota=2, limit=limit).queue("other", quota=4)
        scene.claim("shared", 4, "n", users=["a"])
        scene.group("first", "other", preemptible=preemptible)
        return scene.pod("first", "n", name="a", claims=("shared",))

    @pytest.mark.parametrize(
        ("limit", "preemptible", "starts"),
        [(None, True, True), (2, True, False), (4, False, False)],
    )
    def test_it_counts_in_the_queue_of_each_pod_that_starts_with_it(
        self, limit: int | None, preemptible: bool, starts: bool
    ) -> None:
        """The pod that had it first may end, and its queue then let others start."""
        scene = self._scene(limit, preemptible=preemptible)
        scene.group("second", "q", preemptible=preemptible)
        scene.pod("second", name="b", claims=("shared",))
        assert ("b" in started(scene.plan())) is starts

    def test_it_counts_in_each_queue_until_the_last_of_its_pods_has_left(self) -> None:
        scene = self._scene(None, preemptible=True).group("second", "q")
        scene.pod("second", "n", name="b", claims=("shared",)).pod(None, "n", claims=("shared",))
        state = scene.state()
        at = state.occupancy.tree.resources.index(GPU)
        before = {name: has[at] for name, has in state.occupancy.accounts.allocated.items()}
        mark = state.occupancy.mark()
        state.occupancy.evict("t/a", here=False)
        assert before == {"q": 4, "other": 4, ROOT: 0, LOST: 0}
        assert {name: has[at] for name, has in state.occupancy.accounts.allocated.items()} == {
            "q": 4, "other": 0, ROOT: 0, LOST: 0,
        }  # fmt: skip
        state.occupancy.rollback(mark)
        assert {name: has[at] for name, has in state.occupancy.accounts.allocated.items()} == before
