"""What a cluster is typically asked for."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.group import WHOLE
from controller.engine.model.wish import TypicalWish, Wish
from controller.engine.state.wishes import AskedWishes, Beside

DEFAULT = AskedWishes().typical()
SIX = Wish(6_144, 1 << 33, 6, WHOLE)

_asked = st.lists(
    st.tuples(
        st.sampled_from(["a", "b"]),
        st.builds(
            Wish,
            st.integers(0, 64_000),
            st.integers(0, 1 << 38),
            st.integers(1, 70),
            st.integers(1, WHOLE),
        ),
    ),
    max_size=12,
)


def _typical(*asked: tuple[str, Wish]) -> Sequence[TypicalWish]:
    wishes = AskedWishes()
    for number, (queue, wish) in enumerate(asked):
        wishes.put(f"claim-{number}", queue, wish)
    return wishes.typical()


def _part(typical: Sequence[TypicalWish], devices: int) -> float:
    """The part of the weight that wishes for so many devices have."""
    total = sum(one.weight for one in typical)
    return sum(one.weight for one in typical if one.wish.devices == devices) / total


def test_without_claims_it_is_a_default_with_parts_and_with_several_devices() -> None:
    assert {one.wish.devices for one in DEFAULT} == {1, 2, 4, 8}
    assert any(one.wish.part < WHOLE for one in DEFAULT)


def test_where_there_is_less_beside_a_gpu_the_default_asks_for_less() -> None:
    little = AskedWishes().typical(Beside.of(cpu=8_000, memory=0, gpus=2))
    assert max(one.wish.cpu for one in little) < max(one.wish.cpu for one in DEFAULT) / 3
    assert {one.wish.memory for one in little} == {0}


def test_claims_of_a_queue_are_learned() -> None:
    typical = _typical(*[("q", SIX)] * 64)
    assert _part(typical, 6) > 0.7
    assert SIX in {one.wish for one in typical}


@pytest.mark.parametrize(
    ("asked", "counted"), [(8, 8), (9, 16), (16, 16), (17, 32), (64, 64), (65, 64), (500, 64)]
)
def test_beyond_eight_a_number_of_devices_is_rounded_up(asked: int, counted: int) -> None:
    typical = _typical(*[("q", SIX._replace(devices=asked))] * 64)
    assert _part(typical, counted) > 0.5


def test_few_claims_say_little() -> None:
    assert _part(_typical(("q", SIX)), 6) < 0.1


def test_a_queue_says_no_more_by_more_claims() -> None:
    others = [("q", Wish(8_192, 1 << 33, 1, WHOLE))] * 64
    some = _part(_typical(*others, *[("tenant", SIX)] * 64), 6)
    many = _part(_typical(*others, *[("tenant", SIX)] * 6_400), 6)
    assert many == some < 0.5


def test_what_is_asked_for_beside_devices_counts_as_far_as_nodes_have_it() -> None:
    wishes = AskedWishes()
    wishes.put("claim", "q", Wish(1 << 60, 1 << 60, 6, WHOLE))
    beside = Beside.of(cpu=32_768, memory=1 << 36, gpus=4)
    [six] = [one.wish for one in wishes.typical(beside) if one.wish.devices == 6]
    assert six == Wish(6 * beside.cpu, 6 * beside.memory, 6, WHOLE)


def test_a_claim_that_is_gone_is_forgotten() -> None:
    wishes = AskedWishes()
    wishes.put("claim", "q", SIX)
    wishes.put("claim", "q", None)
    assert wishes.typical() == DEFAULT


def test_a_claim_counts_as_what_it_has_now() -> None:
    wishes = AskedWishes()
    wishes.put("claim", "q", Wish(1, 1, 3, WHOLE))
    wishes.put("claim", "q", SIX)
    assert wishes.typical() == _typical(("q", SIX))


def test_one_more_of_many_claims_changes_nothing() -> None:
    assert _typical(*[("q", SIX)] * 200) == _typical(*[("q", SIX)] * 201)


@given(_asked)
def test_the_order_of_claims_does_not_matter(asked: list[tuple[str, Wish]]) -> None:
    assert _typical(*sorted(asked)) == _typical(*asked)


@given(_asked)
def test_parts_stay_parts_and_whole_devices_whole(asked: list[tuple[str, Wish]]) -> None:
    for one in _typical(*asked):
        assert 0 < one.wish.part <= WHOLE
        assert one.weight > 0
