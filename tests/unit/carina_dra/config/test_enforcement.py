"""The order of the levels of enforcement."""

from itertools import product
from typing import get_args

import pytest

from carina_dra.config.enforcement import (
    CoreEnforcement,
    MemoryEnforcement,
    cores_suffice,
    highest_cores,
    highest_memory,
    memory_suffices,
)


@pytest.mark.parametrize(
    ("available", "demands"),
    [("none", {"none"}), ("mps", {"none", "mps"}), ("kernel", {"none", "mps", "kernel"})],
)
def test_a_level_of_memory_meets_demands_up_to_itself(
    available: MemoryEnforcement, demands: set[MemoryEnforcement]
) -> None:
    levels: tuple[MemoryEnforcement, ...] = get_args(MemoryEnforcement)
    assert {level for level in levels if memory_suffices(available, level)} == demands


@pytest.mark.parametrize(
    ("available", "demands"),
    [
        ("none", {"none"}),
        ("time-slice", {"none", "time-slice"}),
        ("mps", {"none", "time-slice", "mps"}),
    ],
)
def test_a_level_of_cores_meets_demands_up_to_itself(
    available: CoreEnforcement, demands: set[CoreEnforcement]
) -> None:
    levels: tuple[CoreEnforcement, ...] = get_args(CoreEnforcement)
    assert {level for level in levels if cores_suffice(available, level)} == demands


def test_the_highest_level_meets_every_demand() -> None:
    memory: tuple[MemoryEnforcement, ...] = get_args(MemoryEnforcement)
    cores: tuple[CoreEnforcement, ...] = get_args(CoreEnforcement)
    for pair in product(memory, repeat=2):
        assert all(memory_suffices(highest_memory(pair), demand) for demand in pair)
    for cores_pair in product(cores, repeat=2):
        assert all(cores_suffice(highest_cores(cores_pair), demand) for demand in cores_pair)
