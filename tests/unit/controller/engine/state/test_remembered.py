"""How much is remembered of what tenants write."""

import pytest

from controller.engine.state.remembered import Remembered, most_sets


@pytest.mark.parametrize(
    ("nodes", "most"), [(0, 1_024), (500, 1_024), (5_000, 209), (50_000, 20), (10**6, 16)]
)
def test_fewer_sets_of_nodes_are_remembered_on_a_larger_cluster(nodes: int, most: int) -> None:
    assert most_sets(nodes) == most


def test_results_are_forgotten_when_they_are_far_more_than_the_objects() -> None:
    remembered: Remembered[int, int] = Remembered(lambda: 10)
    for number in range(84):
        remembered[number] = number
    assert len(remembered) == 84
    remembered[84] = 84
    assert remembered == {84: 84}
