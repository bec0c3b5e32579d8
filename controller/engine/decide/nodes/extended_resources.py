"""How nodes serve the extended resources of a pod: by a device plugin, or by a planned claim.

A node whose device plugin offers a resource serves it so; on others, kube-scheduler makes a claim
for it (KEP-5004). Nodes of both kinds may be in one cluster, and a pod may ask for several
resources, of which a node serves some in one way and some in the other.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.resource import Exactly, ResourceClaim
from controller.engine.model.pod import Pod
from controller.engine.model.reason import ExclusiveDevices
from controller.engine.model.resource import DevicesOf
from controller.engine.state.state import State

_REMEMBERED: Final = 64
"""Of how many combinations of resources it is remembered which nodes offer them."""


@dataclass(frozen=True, slots=True)
class Service:
    """Nodes that serve the extended resources of a pod in the same way."""

    nodes: frozenset[str]
    claims: tuple[ResourceClaim, ...]
    """Those of the pod that need devices there."""
    is_planned: bool
    """Whether kube-scheduler is to make one of them, and to choose its devices."""


class ExtendedResources:
    """Says how the nodes of a state serve pods, and remembers it until nodes change."""

    def __init__(self, state: State) -> None:
        self._state = state
        self._moment = -1
        self._divided: dict[tuple[str, ...], Mapping[frozenset[str], frozenset[str]]] = {}
        """By names of resources: the nodes by which of them they offer by device plugins."""

    def services(
        self, pod: Pod, nodes: frozenset[str], claims: tuple[ResourceClaim, ...]
    ) -> Sequence[Service] | ExclusiveDevices:
        """The ways in which some nodes can serve a pod whose `claims` need devices.

        Device plugins come first: nodes with them are of no use to pods with claims. They are left
        out if the queue counts none of their GPUs, and others can serve the pod.
        """
        if not pod.planned:
            return (Service(nodes, claims, is_planned=False),)
        by_plugin: list[Service] = []
        uncounted: list[Service] = []
        by_claim: list[Service] = []
        exclusive: str | None = None
        for offered, among in self._by_offer(pod).items():
            here = among & nodes
            if not here:
                continue
            needed = set(pod.claims_where(offered))
            service = Service(
                here,
                tuple(claim for claim in claims if claim.key in needed),
                is_planned=any(key in needed for _, key in pod.planned),
            )
            kept = next(self._exclusive(pod, offered), None)
            if kept is not None:
                exclusive = kept
            elif not offered:
                by_claim.append(service)
            elif self._is_counted(pod, offered):
                by_plugin.append(service)
            else:
                uncounted.append(service)
        if exclusive is not None and not (by_plugin or by_claim):
            return ExclusiveDevices(pod.key, exclusive)
        return [*by_plugin, *by_claim] or uncounted

    def _by_offer(self, pod: Pod) -> Mapping[frozenset[str], frozenset[str]]:
        """The nodes by which of the pod's resources they offer; those that offer most first."""
        state = self._state
        if self._moment != state.occupancy.capacity.moment:
            self._moment = state.occupancy.capacity.moment
            self._divided.clear()
        names = tuple(name for name, _ in pod.planned)
        known = self._divided.get(names)
        if known is None:
            wanted, found = frozenset(names), dict[frozenset[str], list[str]]()
            for name, node in state.occupancy.nodes.items():
                found.setdefault(wanted & node.offered, []).append(name)
            if len(self._divided) >= _REMEMBERED:
                self._divided.clear()
            ordered = sorted(found, key=lambda offered: (-len(offered), sorted(offered)))
            known = self._divided[names] = {
                offered: frozenset(found[offered]) for offered in ordered
            }
        return known

    def _is_counted(self, pod: Pod, offered: frozenset[str]) -> bool:
        """Whether the queue of a pod counts the GPUs that device plugins would serve it."""
        gpus = self._state.occupancy.asking.plugin_gpus(pod.needs.served_by(offered))
        return self._state.occupancy.accounts.counts(self._state.occupancy.queue_of(pod), gpus)

    def _exclusive(self, pod: Pod, offered: frozenset[str]) -> Iterator[str]:
        """The resources that a node would serve by devices that are for queues only."""
        if not self._state.settings.exclusive:
            return
        for name, key in pod.planned:
            claim = self._state.occupancy.claims.get(key)
            if name in offered or claim is None:
                continue
            for request in claim.spec.devices.requests:
                if isinstance(request.wants, Exactly):
                    devices = DevicesOf(request.wants.request.device_class_name)
                    if self._state.occupancy.devices.is_about_gpus(devices):
                        yield name
