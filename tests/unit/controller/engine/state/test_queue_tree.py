"""The queues as a tree, and what follows from it."""

from fractions import Fraction
from typing import Any

import pytest

from carina_dra.allocator.preference import Order, Policy
from controller.engine.model.queue import CutOffCause, Entitlement, Queue
from controller.engine.model.resource import CapacityOf, Cpu, DevicesOf, Resource
from controller.engine.state.queue_tree import ROOT, QueueTree

GPU = DevicesOf("gpu")


def _queue(name: str, parent: str | None = None, /, **fields: Any) -> Queue:
    return Queue(name, parent, **fields)


def _entitled(name: str, parent: str | None, resource: Resource, **fields: Any) -> Queue:
    return Queue(name, parent, entitlements={resource: Entitlement(**fields)})


def test_the_way_up_begins_with_the_queue_itself() -> None:
    tree = QueueTree([_queue("c", "b"), _queue("b", "a"), _queue("a")])
    assert tree.paths["c"] == ("c", "b", "a")
    assert tree.paths[ROOT] == (ROOT,)
    assert tree.children == {ROOT: ["a"], "a": ["b"], "b": ["c"]}


@pytest.mark.parametrize(
    ("queues", "left_out"),
    [
        ([_queue("a", "gone")], {"a"}),
        ([_queue("a", "gone"), _queue("b", "a")], {"a", "b"}),
        ([_queue("a", "a")], {"a"}),
        ([_queue("a", "b"), _queue("b", "a")], {"a", "b"}),
        ([_queue("a", "b"), _queue("b", "c"), _queue("c", "b")], {"a", "b", "c"}),
    ],
)
def test_queues_that_do_not_lead_to_the_top_are_not_in_the_tree(
    queues: list[Queue], left_out: set[str]
) -> None:
    tree = QueueTree([*queues, _queue("good")])
    assert set(tree.queues) == {"good"}
    assert not any(map(tree.is_leaf, left_out))


def test_only_queues_without_children_take_work() -> None:
    tree = QueueTree([_queue("a"), _queue("b", "a")])
    assert [tree.is_leaf(name) for name in ("a", "b", "c", ROOT)] == [False, True, False, False]


class TestEntitlements:
    def test_resources_are_all_that_a_queue_names(self) -> None:
        tree = QueueTree([_entitled("a", None, GPU), _entitled("b", None, Cpu())])
        assert tree.resources == (Cpu(), GPU)
        assert tree.index == {Cpu(): 0, GPU: 1}

    def test_quotas_and_limits_are_in_the_order_of_the_resources(self) -> None:
        both = {GPU: Entitlement(1, 2), Cpu(): Entitlement(3, None)}
        tree = QueueTree([_queue("a", entitlements=both)])
        assert tree.quotas("a") == (3, 1)
        assert tree.limits("a") == (None, 2)
        assert tree.entitlements("a") == (Entitlement(3, None), Entitlement(1, 2))

    def test_a_leaf_without_its_own_has_no_quota_of_devices(self) -> None:
        tree = QueueTree([_entitled("a", None, GPU, quota=4), _queue("b")])
        assert tree.entitlements("b") == (Entitlement(0, None, Fraction(1)),)

    @pytest.mark.parametrize(
        ("of_x", "of_y", "together"), [(1, 2, 3), (1, None, None), (None, None, None), (0, 0, 0)]
    )
    def test_a_queue_without_its_own_has_the_quotas_of_its_children(
        self, of_x: int | None, of_y: int | None, together: int | None
    ) -> None:
        tree = QueueTree(
            [
                _queue("a"),
                _entitled("x", "a", GPU, quota=of_x),
                _entitled("y", "a", GPU, quota=of_y),
            ]
        )
        assert tree.quotas("a") == (together,)
        assert tree.limits("a") == (None,)

    def test_its_own_comes_before_that_of_its_children(self) -> None:
        tree = QueueTree([_entitled("a", None, GPU, quota=1), _entitled("x", "a", GPU, quota=5)])
        assert tree.quotas("a") == (1,)

    def test_who_names_devices_only_has_all_that_it_asks_for_of_others(self) -> None:
        tree = QueueTree([_entitled("a", None, GPU), _entitled("b", None, Cpu(), quota=1)])
        assert tree.quotas("a") == (None, 0)
        memory = CapacityOf("gpu.carina.dev/memory")
        tree = QueueTree([_entitled("a", None, Cpu()), _entitled("b", None, memory)])
        assert tree.quotas("a")[tree.index[memory]] == 0


class TestSettings:
    def test_eviction_grace_is_that_of_the_nearest_queue_above_or_ten_minutes(self) -> None:
        queues = [_queue("a", eviction_grace=30), _queue("b", "a"), _queue("c")]
        tree = QueueTree(queues)
        assert {name: tree.eviction_grace(name) for name in "abc"} == {"a": 30, "b": 30, "c": 600}

    def test_preempt_min_runtime_is_that_of_the_nearest_queue_above(self) -> None:
        tree = QueueTree(
            [
                _queue("a", preempt_min_runtime=1),
                _queue("b", "a", preempt_min_runtime=0),
                _queue("c", "b"),
                _queue("d", "a"),
                _queue("e"),
            ]
        )
        found = {name: tree.preempt_min_runtime(name, 9) for name in "abcde"}
        assert found == {"a": 1, "b": 0, "c": 0, "d": 1, "e": 9}

    @pytest.mark.parametrize(
        ("victim", "reclaimer", "expected"),
        [
            ("a1x", "b1", 1),  # the queue just below the top, on the victim's side
            ("a1x", "a2", 2),  # just below a
            ("a1x", "a1y", 3),  # the victim's queue itself
            ("a2", "a1x", 1),  # it says nothing: the nearest above it
            ("b1", "a2", 9),  # nobody says it
        ],
    )
    def test_reclaim_min_runtime_is_said_below_where_the_ways_up_meet(
        self, victim: str, reclaimer: str, expected: float
    ) -> None:
        tree = QueueTree(
            [
                _queue("a", reclaim_min_runtime=1),
                _queue("a1", "a", reclaim_min_runtime=2),
                _queue("a1x", "a1", reclaim_min_runtime=3),
                _queue("a1y", "a1"),
                _queue("a2", "a"),
                _queue("b"),
                _queue("b1", "b"),
            ]
        )
        assert tree.reclaim_min_runtime(victim, reclaimer, 9) == expected

    def test_placement_is_that_of_the_nearest_queue_above(self) -> None:
        spread, default = Policy(Order.SPREAD), Policy(Order.FRAGMENTATION)
        tree = QueueTree([_queue("a", placement=spread), _queue("b", "a"), _queue("c")])
        assert [tree.placement(name, default) for name in "abc"] == [spread, spread, default]


def test_a_tree_has_at_most_64_levels() -> None:
    chain = [Queue("0"), *(Queue(str(level), str(level - 1)) for level in range(1, 2_000))]
    tree = QueueTree(chain)
    assert tree.queues.keys() == {str(level) for level in range(64)}
    assert tree.cut_off["64"] == ("0", CutOffCause.DEPTH)
