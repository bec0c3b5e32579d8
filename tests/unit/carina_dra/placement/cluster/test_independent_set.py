"""The largest set of devices of which no two are in conflict."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.placement.cluster.independent_set import largest
from carina_dra.work import Work

_PAIRS = list(combinations(range(7), 2))


def _conflicts(*pairs: tuple[int, int]) -> dict[int, int]:
    conflicts: dict[int, int] = {}
    for one, other in pairs:
        conflicts[1 << one] = conflicts.get(1 << one, 0) | 1 << other
        conflicts[1 << other] = conflicts.get(1 << other, 0) | 1 << one
    return conflicts


def _triangles(number: int) -> dict[int, int]:
    """Devices in threes, of which any two are in conflict."""
    starts = range(0, 3 * number, 3)
    return _conflicts(
        *(pair for start in starts for pair in combinations(range(start, start + 3), 2))
    )


@given(st.integers(0, 127), st.sets(st.sampled_from(_PAIRS)), st.integers(1, 7))
def test_size_is_that_of_the_largest_set_up_to_what_is_enough(
    devices: int, pairs: set[tuple[int, int]], enough: int
) -> None:
    among = [index for index in range(7) if devices >> index & 1]
    size = max(
        count
        for count in range(len(among) + 1)
        for chosen in combinations(among, count)
        if pairs.isdisjoint(combinations(chosen, 2))
    )
    assert largest(devices, _conflicts(*pairs), enough, Work()) == min(size, enough)


def test_one_of_each_three_is_the_largest_set() -> None:
    assert largest(2**9 - 1, _triangles(3), 3, Work()) == 3
    assert largest(2**9 - 1, _triangles(3), 4, Work()) == 3


def test_set_that_is_not_ruled_out_in_time_is_taken_to_be_possible() -> None:
    """There are 4^20 sets without a conflict."""
    assert largest(2**60 - 1, _triangles(20), 21, Work()) == 21


def test_large_set_is_found_at_once_where_few_are_in_conflict() -> None:
    assert largest(2**128 - 1, _conflicts((0, 1)), 128, Work()) == 127
