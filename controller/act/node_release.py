"""Which pods without a queue are evicted from nodes whose devices are released.

Those with devices of the driver, where the node says that all are to go. Pods of queues are evicted
by the plan (`engine.decide.victims.released`). Disruption budgets are respected always.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from math import inf
from typing import Final

from controller.engine.decide.victims.released import AT_ONCE, has_devices_of_driver
from controller.engine.model.node import NodeRelease
from controller.engine.model.plan import Action, Eviction
from controller.observe.mirror import PODS, Mirror
from controller.observe.pod import ObservedPod

_AGAIN: Final = 5.0
"""Seconds before the next look, while pods are left."""


@dataclass(slots=True)
class ReleaseEvictions:
    """The evictions that released nodes ask for. Used by one thread."""

    mirror: Mirror
    wake: float | None = None
    """When pods are looked at again that are left, as a Unix time."""

    def due(self, now: float) -> Iterator[tuple[Eviction, ObservedPod]]:
        """The evictions to be asked for now: of one node, a few pods are leaving at a time."""
        self.wake = None
        state = self.mirror.state
        for node in sorted(state.released):
            if state.occupancy.nodes[node].release is not NodeRelease.ALL:
                continue
            pods = dict(state.occupancy.on_node.get(node, {}))
            left = list(
                self.mirror.set_aside.each(
                    PODS, "looked at for a release", pods, partial(self._candidate, node)
                )
            )
            if left:
                self.wake = now + _AGAIN
            leaving = sum(pod.key in self.mirror.evicting for _, pod in left)
            may_go = [
                (eviction, pod) for eviction, pod in left if self.mirror.may_be_evicted(pod.key)
            ]
            yield from may_go[: max(0, AT_ONCE - leaving)]

    def _candidate(self, node: str, key: str) -> Iterator[tuple[Eviction, ObservedPod]]:
        pod, state = self.mirror.pods.get(key), self.mirror.state
        if pod is None or pod.queue is not None or pod.deleted is not None:
            return
        if has_devices_of_driver(state, state.occupancy.pods[key]):
            yield Eviction(key, node, Action.RELEASE, "", grace=inf), pod
