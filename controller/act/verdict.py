"""What follows when kube-scheduler refuses a pod that the controller has started.

A pinned pod can run on its node only, so it is given devices nowhere else: if they were taken back,
kube-scheduler allocates some there again, or refuses the pod, which is evicted and replaced then. A
pod that nobody replaces is not pinned: it waits until its devices are taken back, and gets others.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

from controller.observe.mirror import Mirror
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


Verdict: TypeAlias = DecideAgain | GiveUp


def verdicts(mirror: Mirror, now: float, verdict_seconds: float) -> Iterator[Verdict]:
    """What follows from the refusals that have lasted for long enough at a Unix time."""
    for key, since in list(mirror.refused.items()):
        pod, group = mirror.pods[key], mirror.roster.group_of(key)
        node = pod.given if pod.is_pinned else mirror.last_node(pod)
        if node is None or group is None:
            continue
        if pod.is_pinned:
            if since + verdict_seconds <= now:
                yield GiveUp(pod, group, node)
        elif mirror.is_taken_back(pod):
            yield DecideAgain(pod, group, node)


def next_verdict(mirror: Mirror, verdict_seconds: float) -> float | None:
    """When a refusal will have lasted for long enough, as a Unix time."""
    return min(
        (
            since + verdict_seconds
            for key, since in mirror.refused.items()
            if mirror.pods[key].is_pinned
        ),
        default=None,
    )
