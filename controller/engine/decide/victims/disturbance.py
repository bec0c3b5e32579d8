"""How much a plan disturbs: of those that the rules permit, the least is chosen."""

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple, TypeAlias

from controller.engine.decide.gangs.evicted import EvictionUnit
from controller.engine.decide.gangs.placement_unit import is_satisfied
from controller.engine.model.group import Group
from controller.engine.model.pod import Placed, Pod
from controller.engine.state.members import order_of_pod
from controller.engine.state.occupancy import Occupancy

NOBODY_FALLS: Final = -(1 << 63)
"""Stands for a priority lower than any."""
Age: TypeAlias = tuple[float, int]
"""Of a pod: when its group was created, and its number in the group, both negated."""


class FairGiving(NamedTuple):
    """How fair it is whom a plan takes from, the fairest first."""

    turn: int
    """How many queues should have given before one that gives, at most."""
    is_below: bool
    """Whether one that gives is left with less than it may count on."""


FAIR: Final = FairGiving(0, is_below=False)
UNFAIR: Final = FairGiving(1 << 31, is_below=True)
"""Queues give in an order in which one of them need not."""


class Disturbance(NamedTuple):
    """What is compared of two plans, the least first."""

    falls: bool
    """Whether a group ends, rather than spare some pods."""
    fairness: FairGiving
    priority: int
    """The highest of a group that falls."""
    gone: int
    """The pods that are evicted for good."""
    groups: int
    """The groups that fall."""
    pods: int
    """The pods that are evicted."""
    ages: tuple[Age, ...]
    """Of these pods, the oldest first: it is least where they are young."""


def disturbance(
    occupancy: Occupancy, evicted: Iterable[EvictionUnit], fairness: FairGiving
) -> Disturbance:
    """How much is disturbed in a trial by who has been evicted."""
    of_group: dict[str, list[Pod]] = {}
    for unit in evicted:
        of_group.setdefault(unit.group.key, []).extend(unit.pods)
    gone = falling = 0
    priority = NOBODY_FALLS
    ages: list[Age] = []
    for key, pods in of_group.items():
        group = occupancy.groups[key]
        left = sum(pod.key not in occupancy.holds for pod in pods)
        gone += left
        if left and not is_satisfied(occupancy, group):
            falling += 1
            priority = max(priority, group.priority)
        known = ages_of(occupancy, group)
        ages += (known[pod.key] for pod in pods)
    return Disturbance(
        falling > 0, fairness, priority, gone, falling, len(ages), oldest_first(ages)
    )


def oldest_first(ages: Iterable[Age]) -> tuple[Age, ...]:
    """Ages as they are compared."""
    return tuple(sorted(ages, reverse=True))


def ages_of(occupancy: Occupancy, group: Group) -> Mapping[str, Age]:
    """The ages of the pods of a group that run, by pod."""
    pods = (
        occupancy.pods[key]
        for of_set in occupancy.members[group.key].by_set.values()
        for key in of_set
    )
    running = sorted((pod for pod in pods if isinstance(pod.state, Placed)), key=order_of_pod)
    return {pod.key: (-group.created, -number) for number, pod in enumerate(running)}
