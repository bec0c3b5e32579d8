"""What partitions of a GPU share, from its profiles."""

import pytest

from kubelet_plugin.inventory.mig import MigLayout, MigPlacement, MigProfile, MigResources
from tests.samples.gpus import LAYOUT

NOTHING = MigResources(0, 0, 0, 0, 0, 0, 0)


def profile(resources: MigResources, *placements: MigPlacement) -> MigProfile:
    return MigProfile(
        name="",
        id=0,
        index=0,
        slices=1,
        max_instances=1,
        resources=resources,
        placements=placements,
    )


def test_a_layout_without_profiles_has_nothing() -> None:
    assert MigLayout(()).total == NOTHING
    assert MigLayout(()).memory_slices == 0


def test_memory_slices_reach_to_the_end_of_the_last_placement() -> None:
    small = profile(NOTHING, MigPlacement(0, 1), MigPlacement(6, 1))
    large = profile(NOTHING, MigPlacement(0, 4), MigPlacement(4, 4))
    assert MigLayout((small,)).memory_slices == 7
    assert MigLayout((small, large)).memory_slices == 8
    assert LAYOUT.memory_slices == 8


@pytest.mark.parametrize("order", [1, -1])
def test_totals_are_the_most_that_any_profile_has_of_each(order: int) -> None:
    wide = profile(MigResources(98, 7, 5, 0, 1, 1, 80_000))
    special = profile(MigResources(14, 1, 1, 4, 2, 0, 9_000))
    layout = MigLayout((wide, special)[::order])
    assert layout.total == MigResources(98, 7, 5, 4, 2, 1, 80_000)
