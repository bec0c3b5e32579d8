"""What follows when kube-scheduler refuses a pod that the controller has started.

A pinned pod can run on its node only, so it is given devices nowhere else: if they were taken back,
kube-scheduler allocates some there again, or refuses the pod, which is evicted and replaced then. A
pod that nobody replaces is not pinned: it waits until its devices are taken back, and gets others.

Where kube-scheduler chooses the devices, it may find none on the node: what was planned was taken
before. A gang cannot run without one of its pods, so all of it is evicted, and planned again. A pod
that nobody replaces is pinned, too, and stays: an Event says what to do.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, TypeAlias

from controller.engine.decide.gangs.placement_unit import stands
from controller.engine.model.plan import Plan
from controller.engine.model.reason import NoDomain, NoRoom, OverLimit, OverQuota, TooManyGpus
from controller.engine.state.occupancy import Occupancy
from controller.observe.mirror import PODS, Mirror
from controller.observe.pod import ObservedPod


@dataclass(frozen=True, slots=True)
class DecideAgain:
    """A pod whose devices were taken back gets others, elsewhere."""

    pod: ObservedPod
    group: str
    node: str
    """The node that refused it."""


@dataclass(frozen=True, slots=True)
class GiveUp:
    """A pinned pod is to be evicted."""

    pod: ObservedPod
    group: str
    node: str
    """The node that refused it."""
    mates: tuple[ObservedPod, ...] = ()
    """The pods of its gang, which go with it, since it gets no devices."""


@dataclass(frozen=True, slots=True)
class Strand:
    """A pod that nobody replaces stays without devices, on the only node where it can be."""

    pod: ObservedPod
    group: str
    node: str


@dataclass(frozen=True, slots=True)
class Keep:
    """A pinned pod stays: it can go to no other node, and nobody else needs its devices."""

    pod: ObservedPod
    group: str


Verdict: TypeAlias = DecideAgain | GiveUp | Strand | Keep


_OF_ROOM: Final = NoRoom | NoDomain | OverLimit | OverQuota | TooManyGpus
"""The reasons of groups that wait for room."""


def is_about_all_nodes(words: str) -> bool:
    """Whether kube-scheduler gives a reason that does not depend on the node.

    It writes `0/4 nodes are available: REASON`, and a number of nodes before each reason that does.
    """
    _, found, reason = words.partition("nodes are available: ")
    return bool(found) and not reason[:1].isdigit()


def devices_are_needed(occupancy: Occupancy, plan: Plan | None) -> bool:
    """Whether a group waits for room that kube-scheduler has not refused."""
    if plan is None:
        return False
    return any(
        any(isinstance(reason, _OF_ROOM) for reason in reasons)
        for key, reasons in plan.waiting.items()
        if key in occupancy.groups and occupancy.groups[key].refusal is None
    )


def verdicts(
    mirror: Mirror, now: float, verdict_seconds: float, *, is_needed: Callable[[], bool]
) -> Iterator[Verdict]:
    """What follows from the refusals that have lasted for long enough at a Unix time.

    is_needed: whether somebody waits for devices that refused pods have.
    """
    refused = dict(mirror.refused)
    return mirror.set_aside.each(
        PODS,
        "judged",
        refused,
        lambda key: _verdict(
            mirror, key, is_needed, has_lasted=refused[key] + verdict_seconds <= now
        ),
    )


def _verdict(
    mirror: Mirror, key: str, is_needed: Callable[[], bool], *, has_lasted: bool
) -> Iterator[Verdict]:
    pod, group = mirror.pods[key], mirror.roster.group_of(key)
    node = pod.given if pod.is_pinned else mirror.last_node(pod)
    if node is None or group is None:
        return
    if not pod.is_pinned:
        if mirror.is_taken_back(pod):
            yield DecideAgain(pod, group, node)
    elif has_lasted and pod.owner is None:
        if key not in mirror.kept:
            yield Strand(pod, group, node)
    elif has_lasted:
        may_stay = is_about_all_nodes(pod.verdict or "") and not mirror.is_taken_back(pod)
        if not may_stay or is_needed():
            yield GiveUp(pod, group, node, tuple(_mates(mirror, pod, group)))
        elif key not in mirror.kept:
            yield Keep(pod, group)


def _mates(mirror: Mirror, pod: ObservedPod, key: str) -> Iterator[ObservedPod]:
    """The pods that cannot run without one that gets no devices, and that are replaced."""
    group = mirror.state.occupancy.groups.get(key)
    if group is None or not mirror.is_unserved(pod.key):
        return
    if stands(mirror.state.occupancy, group, without=[mirror.state.occupancy.pods[pod.key]]):
        return
    for mate in mirror.roster.members(key):
        is_there = not mate.is_held and mate.succeeded is None and mate.deleted is None
        if mate.key != pod.key and is_there and mate.owner is not None:
            yield mate


def next_verdict(mirror: Mirror, verdict_seconds: float) -> float | None:
    """When a refusal will have lasted for long enough, as a Unix time."""
    return min(
        (
            max(since + verdict_seconds, mirror.set_aside.until(PODS, key))
            for key, since in mirror.refused.items()
            if mirror.pods[key].is_pinned and key not in mirror.kept
        ),
        default=None,
    )
