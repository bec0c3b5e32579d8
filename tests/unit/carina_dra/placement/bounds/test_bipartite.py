"""Matchings are as large as those that are found by trying all."""

from itertools import combinations

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.placement.bounds.bipartite import has_matching
from carina_dra.work import Work


def _largest(edges: list[tuple[int, int]]) -> int:
    """The size of a maximum matching."""
    return max(
        size
        for size in range(len(edges) + 1)
        for chosen in combinations(edges, size)
        if len({left for left, _ in chosen}) == len({right for _, right in chosen}) == size
    )


@given(st.sets(st.tuples(st.integers(0, 3), st.integers(0, 3)), max_size=9))
def test_matching_has_the_size_of_the_largest(edges: set[tuple[int, int]]) -> None:
    neighbours = {left: [right for one, right in edges if one == left] for left in range(4)}
    largest = _largest(sorted(edges))
    assert has_matching(neighbours, largest, Work())
    assert not has_matching(neighbours, largest + 1, Work())


def test_partners_change_so_that_each_has_one() -> None:
    chain = {n: [n, n + 1] for n in range(1, 40)} | {40: [1]}
    assert has_matching(chain, 40, Work())
    assert not has_matching({**chain, 41: [1]}, 41, Work())
