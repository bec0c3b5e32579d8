"""Levels of enforcement: what is demanded and what is in force."""

from itertools import chain, combinations
from typing import Any

import pytest

from carina_dra.config.enforcement import (
    CORE_ATTRIBUTES,
    MEMORY_ATTRIBUTES,
    LackingLevel,
    Levels,
    demand_remedy,
    demanded,
)


def subsets(levels: Any) -> list[frozenset[Any]]:
    every = list(levels)
    sizes = range(len(every) + 1)
    return [frozenset(s) for s in chain.from_iterable(combinations(every, n) for n in sizes)]


@pytest.mark.parametrize("there", subsets(MEMORY_ATTRIBUTES))
@pytest.mark.parametrize("wanted", subsets(MEMORY_ATTRIBUTES))
def test_a_demand_is_met_if_all_of_its_levels_are_in_force(
    there: frozenset[Any], wanted: frozenset[Any]
) -> None:
    lacking = list(Levels(memory=there).lacking(wanted, ()))
    assert {lack.level for lack in lacking} == wanted - there


@pytest.mark.parametrize("there", subsets(CORE_ATTRIBUTES))
@pytest.mark.parametrize("wanted", subsets(CORE_ATTRIBUTES))
def test_a_demand_of_cores_is_met_if_all_of_its_levels_are_in_force(
    there: frozenset[Any], wanted: frozenset[Any]
) -> None:
    lacking = list(Levels(cores=there).lacking((), wanted))
    assert {lack.level for lack in lacking} == wanted - there


def test_a_higher_level_does_not_stand_for_a_lower_one() -> None:
    levels = Levels(memory=frozenset({"kernel"}), cores=frozenset({"mps"}))
    assert list(levels.lacking({"mps"}, {"time-slice"})) == [
        LackingLevel("memory", "mps", "memoryEnforcementMPS"),
        LackingLevel("cores", "time-slice", "coreEnforcementTimeSlice"),
    ]


@pytest.mark.parametrize(
    ("levels", "memory", "cores"),
    [
        (Levels(), "none", "none"),
        (Levels(frozenset({"watchdog"}), frozenset({"time-slice"})), "watchdog", "time-slice"),
        (Levels(frozenset({"watchdog", "mps"}), frozenset({"time-slice", "mps"})), "mps", "mps"),
        (Levels(frozenset(MEMORY_ATTRIBUTES), frozenset(CORE_ATTRIBUTES)), "kernel", "mps"),
    ],
)
def test_the_strongest_level_is_named(levels: Levels, memory: str, cores: str) -> None:
    assert (levels.strongest_memory, levels.strongest_cores) == (memory, cores)


def test_each_level_is_an_attribute() -> None:
    assert Levels(frozenset({"watchdog"}), frozenset({"time-slice"})).attributes == {
        "memoryEnforcementKernel": False,
        "memoryEnforcementMPS": False,
        "memoryEnforcementWatchdog": True,
        "coreEnforcementMPS": False,
        "coreEnforcementTimeSlice": True,
    }


@pytest.mark.parametrize(
    ("written", "levels"),
    [
        ("none", ()),
        ([], ()),
        ("watchdog", ("watchdog",)),
        (["watchdog", "mps", "watchdog"], ("mps", "watchdog")),
    ],
)
def test_a_demand_is_a_word_or_a_list(written: object, levels: tuple[str, ...]) -> None:
    assert demanded(written, MEMORY_ATTRIBUTES) == levels


@pytest.mark.parametrize("written", ["", "hard", ["none"], [["mps"]], [{}], None, 1, {"mps": 1}])
def test_what_is_no_level_is_no_demand(written: object) -> None:
    with pytest.raises(ValueError, match="write none or kernel or mps or watchdog, or a"):
        demanded(written, MEMORY_ATTRIBUTES)


def test_what_can_be_demanded_is_said_with_a_list_of_the_strongest_and_the_last_level() -> None:
    assert demand_remedy(MEMORY_ATTRIBUTES) == (
        "write none or kernel or mps or watchdog, or a list such as [kernel, watchdog], all of "
        "whose levels are demanded"
    )
