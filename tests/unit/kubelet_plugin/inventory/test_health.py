"""Problems of a GPU, and what follows from them."""

from dataclasses import replace
from datetime import timedelta

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.health import (
    HEALTHY,
    GpuLost,
    in_order,
    since,
    state,
)
from tests.samples.gpus import LOST, NOTICED, UNREADABLE


def test_the_worst_problem_comes_first() -> None:
    assert in_order({UNREADABLE, LOST}) == (LOST, UNREADABLE)
    assert state(frozenset({UNREADABLE, LOST})) == "lost"
    assert state(HEALTHY) == "ready"


def test_a_problem_that_lasts_keeps_the_time_of_its_first_sighting() -> None:
    later = GpuLost(NvmlFailure("nvmlInit", "NVML_ERROR_UNKNOWN"), NOTICED + timedelta(hours=1))

    assert since(later, frozenset({LOST})) == LOST  # with its reason, too
    same = replace(LOST, since=NOTICED + timedelta(hours=1))
    assert since(same, frozenset({LOST})) == LOST
    assert since(later, frozenset({UNREADABLE})) == later
