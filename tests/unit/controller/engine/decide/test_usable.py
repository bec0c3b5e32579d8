"""How much of a node's devices can still be given out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.group import WHOLE
from controller.engine.decide.nodes.usable import Left, after, loss, possible, usable
from controller.engine.model.wish import TypicalWish, Wish

ONE = Wish(10, 0, 1, WHOLE)
HALF = Wish(10, 0, 1, WHOLE // 2)
FOUR = Wish(10, 0, 4, WHOLE)

_parts = st.lists(st.integers(0, WHOLE), max_size=8).map(lambda of: tuple(sorted(of)[::-1]))
_lefts = st.builds(Left, st.integers(0, 100), st.integers(0, 100), st.integers(0, 10), _parts)
_wishes = st.builds(
    Wish, st.integers(0, 30), st.integers(0, 30), st.integers(0, 4), st.integers(1, WHOLE)
)
_of_devices = _wishes.filter(lambda wish: wish.devices > 0)
_typical = st.lists(st.builds(TypicalWish, st.integers(1, 9), _of_devices), max_size=4)


def _of(left: Left, *wishes: Wish) -> float:
    return usable(left, [TypicalWish(1, wish) for wish in wishes])


def _free(*parts: int, cpu: int = 100, memory: int = 100, pods: int = 100) -> Left:
    return Left(cpu, memory, pods, tuple(part * WHOLE // 100 for part in parts))


class TestUsable:
    def test_devices_with_enough_beside_are_usable(self) -> None:
        assert _of(_free(100, 100), ONE) == 2

    @pytest.mark.parametrize(
        "left", [_free(100, 100, cpu=10), _free(100, 100, pods=1)], ids=["cpu", "pods"]
    )
    def test_devices_beyond_cpu_or_pods_are_not(self, left: Left) -> None:
        assert _of(left, ONE) == 1

    def test_devices_beyond_memory_are_not(self) -> None:
        assert _of(_free(100, 100, memory=50), Wish(0, 50, 1, WHOLE)) == 1

    def test_a_device_of_which_something_is_in_use_is_not_whole(self) -> None:
        assert _of(_free(100, 90), ONE) == 1

    def test_a_part_that_is_too_small_is_not_usable(self) -> None:
        assert _of(_free(60, 40), HALF) == pytest.approx(0.6)

    def test_devices_that_do_not_make_up_a_wish_for_several_are_not(self) -> None:
        assert _of(_free(*[100] * 7), FOUR) == 4

    def test_it_is_the_mean_over_the_wishes(self) -> None:
        wishes = [TypicalWish(3, ONE), TypicalWish(1, FOUR)]
        assert usable(_free(100, 100), wishes) == 1.5

    def test_nothing_is_without_wishes(self) -> None:
        assert usable(_free(100), []) == 0

    @given(_lefts, _typical)
    def test_it_is_no_more_than_what_is_free(self, left: Left, wishes: list[TypicalWish]) -> None:
        assert -1e-9 <= usable(left, wishes) * WHOLE <= sum(left.parts) + 1e-3


class TestPossible:
    def test_wishes_for_more_devices_than_a_node_has_say_nothing(self) -> None:
        wishes = [TypicalWish(1, ONE), TypicalWish(99, FOUR)]
        assert possible(wishes, in_parts=False, most=2) == wishes[:1]
        assert possible(wishes, in_parts=False, most=4) == wishes

    def test_wishes_for_parts_say_nothing_where_there_are_none(self) -> None:
        wishes = [TypicalWish(1, ONE), TypicalWish(9, HALF)]
        assert possible(wishes, in_parts=False, most=2) == wishes[:1]
        assert possible(wishes, in_parts=True, most=2) == wishes


class TestAfter:
    def test_a_part_is_taken_of_the_device_that_is_used_most(self) -> None:
        rest = after(_free(100, 60), HALF)
        assert rest is not None
        assert rest.parts == (WHOLE, WHOLE // 10)

    @pytest.mark.parametrize(
        "left",
        [_free(40), _free(100, cpu=9), _free(100, pods=0), _free()],
        ids=["parts", "cpu", "pods", "devices"],
    )
    def test_there_is_nothing_where_there_is_no_room(self, left: Left) -> None:
        assert after(left, HALF) is None

    @pytest.mark.parametrize("left", [_free(100, cpu=10), _free(100, pods=1)], ids=["cpu", "pods"])
    def test_all_that_is_free_may_be_used(self, left: Left) -> None:
        assert after(left, HALF) is not None

    def test_there_is_nothing_where_memory_is_missing(self) -> None:
        wish = Wish(0, 10, 1, WHOLE)
        assert after(_free(100, memory=10), wish) is not None
        assert after(_free(100, memory=9), wish) is None

    def test_a_node_that_is_overcommitted_has_room_for_a_pod_that_asks_for_nothing(self) -> None:
        assert after(_free(100, cpu=-5), Wish(0, 0, 1, WHOLE)) is not None

    @given(_lefts, _wishes)
    def test_what_is_given_out_is_what_is_missing(self, left: Left, wish: Wish) -> None:
        rest = after(left, wish)
        if rest is not None:
            assert sum(left.parts) - sum(rest.parts) == wish.devices * wish.part
            assert list(rest.parts) == sorted(rest.parts, reverse=True)


class TestLoss:
    def _loss(self, before: Left, wish: Wish, abundance: float = 1.0) -> float:
        node = Left(100, 100, 100, (WHOLE,) * len(before.parts))
        rest = after(before, wish)
        assert rest is not None
        wishes = [TypicalWish(1, ONE)]
        lost = usable(before, wishes) - usable(rest, wishes)
        return loss(lost, before, rest, node, abundance)

    def test_a_device_without_cpu_beside_costs_less(self) -> None:
        lean = Wish(0, 0, 1, WHOLE)
        assert self._loss(_free(100, 100, cpu=10), lean) < self._loss(_free(100, 100), lean)

    def test_cpu_that_devices_need_costs(self) -> None:
        cpu_only = Wish(50, 0, 0, WHOLE)
        assert self._loss(_free(0, 0), cpu_only) < self._loss(_free(100, 100), cpu_only)

    def test_a_rare_model_costs_more(self) -> None:
        assert self._loss(_free(100), ONE, 0.9) < self._loss(_free(100), ONE, 0.1)

    def test_of_equal_nodes_the_fuller_one_costs_less(self) -> None:
        free = Wish(0, 0, 1, WHOLE)
        assert self._loss(_free(100, 0, 0, 0), free) < self._loss(_free(100, 100, 0, 0), free)
