"""Who is evicted is known in order and by group, also where units are taken back."""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.decide.gangs.evicted import EvictedUnits, EvictionUnit
from controller.engine.model.group import Group, PodSet
from controller.engine.model.pod import Pending, Pod, PodNeeds
from tests.unit.controller.engine.properties.examples import examples

_GROUPS = tuple(Group(name, "q", PodSet("", 1)) for name in "abc")


@examples(100)
@given(st.randoms(use_true_random=False))
def test_units_by_group_are_those_of_the_list(rng: Random) -> None:
    evicted, units = EvictedUnits(), list[EvictionUnit]()
    for step in range(40):
        match rng.choice(["add", "add", "cut", "remove"]):
            case "add":
                unit = _unit(rng, step)
                evicted.add(unit)
                units.append(unit)
            case "cut":
                count = rng.randint(0, len(units))
                evicted.cut(count)
                del units[count:]
            case _ if units:
                at = rng.randrange(len(units))
                evicted.remove(at)
                del units[at]
            case _:
                pass
        assert list(evicted) == units
        assert evicted.pods == len({pod.key for unit in units for pod in unit.pods})
        assert evicted.groups() == list(dict.fromkeys(unit.group for unit in units))
        for group in _GROUPS:
            pods = [pod.key for unit in units if unit.group is group for pod in unit.pods]
            assert [pod.key for pod in evicted.pods_of(group)] == list(dict.fromkeys(pods))


def test_a_pod_that_leaves_its_new_place_too_has_left_its_place_once() -> None:
    evicted = EvictedUnits()
    for names in ("ab", "bc"):
        left = tuple(Pod(name, PodNeeds(), Pending()) for name in names)
        evicted.add(EvictionUnit(_GROUPS[0], left, must_move=False))
    pods = [[pod.key for pod in unit.pods] for unit in evicted.from_their_places()]
    assert pods == [["a", "b"], ["c"]]


def _unit(rng: Random, step: int) -> EvictionUnit:
    names = [f"p{rng.choice([0, step])}-{index}" for index in range(rng.randint(1, 3))]
    pods = tuple(Pod(name, PodNeeds(), Pending()) for name in names)
    return EvictionUnit(rng.choice(_GROUPS), pods, must_move=False)
