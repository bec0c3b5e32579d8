"""Where a pod may be because of its volumes.

The rules are those of kube-scheduler's VolumeBinding, VolumeRestrictions and NodeVolumeLimits. What
they look at in addition (access modes and selectors of volumes that are not bound yet, zone labels
of volumes, volumes without a claim) is left to kube-scheduler.
"""

from collections.abc import Hashable
from typing import Final

from carina_dra.step_budget import StepBudget
from controller.engine.decide.nodes.labelled_nodes import NO_NODES, LabelledNodes
from controller.engine.model.pod import Pod
from controller.engine.model.reason import BadVolume
from controller.engine.model.volume import (
    NO_PROVISIONER,
    StorageClass,
    VolumeClaim,
    VolumeClaimState,
)
from controller.engine.state.occupancy import Occupancy
from controller.engine.state.remembered import most_sets

_NODES_A_STEP: Final = 100
_VOLUMES_A_STEP: Final = 10


class VolumeRules:
    """Looks at the claims of pods; what it finds is remembered until something changes."""

    def __init__(self, occupancy: Occupancy, nodes: LabelledNodes) -> None:
        self._occupancy = occupancy
        self._nodes = nodes
        self._moment = -1, -1
        self._kinds: dict[tuple[str, int], frozenset[str]] = {}

    def problem(self, pod: Pod) -> BadVolume | None:
        """Why the pod can start on no node; None if nothing says so."""
        for key in pod.volumes:
            reason = self._problem(pod, key)
            if reason is not None:
                return BadVolume(pod.key, reason)
        return None

    def allowed(self, pod: Pod, names: frozenset[str], budget: StepBudget) -> frozenset[str]:
        """Those of the nodes where its volumes can be.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if not pod.volumes:
            return names
        volumes = self._occupancy.volumes
        budget.spend(1 + len(names) // _NODES_A_STEP)
        for key in pod.volumes:
            claim = volumes.claims.get(key)
            if claim is None or self._problem(pod, key) is not None:
                return NO_NODES
            if claim.state is VolumeClaimState.BOUND:
                affinity = volumes.volumes[claim.volume].affinity
                if affinity is not None:
                    names &= self._nodes.selected(affinity, budget)
            else:
                names &= self._of_unbound(claim, budget)
        return self._attachable(pod, names) if volumes.limits else names

    def kind(self, pod: Pod) -> Hashable:
        """Equal for pods whose volumes can be on the same nodes."""
        claims = self._occupancy.volumes.claims
        values = [claims.get(key) for key in pod.volumes]
        if all(value is not None and not value.is_exclusive for value in values):
            return tuple(values)
        return pod.volumes

    def _problem(self, pod: Pod, key: str) -> str | None:
        volumes = self._occupancy.volumes
        claim, name = volumes.claims.get(key), key.partition("/")[2]
        if claim is None:
            return f'persistentvolumeclaim "{name}" not found'
        if claim.state is VolumeClaimState.DELETED:
            return f'persistentvolumeclaim "{name}" is being deleted'
        is_bound = claim.state is VolumeClaimState.BOUND
        if claim.state is VolumeClaimState.LOST or (
            is_bound and claim.volume not in volumes.volumes
        ):
            return (
                f'persistentvolumeclaim "{name}" bound to non-existent persistentvolume '
                f'"{claim.volume}"'
            )
        if not is_bound and self._class_that_waits(claim) is None:
            return f"pod has unbound immediate PersistentVolumeClaims: {name}"
        if claim.is_exclusive:
            others = (user for user in volumes.users.get(key, ()) if user != pod.key)
            other = next(others, None)
            if other is not None:
                return (
                    f'persistentvolumeclaim "{name}" with ReadWriteOncePod is in use by pod {other}'
                )
        return None

    def _class_that_waits(self, claim: VolumeClaim) -> StorageClass | None:
        """The class of an unbound claim, if its volume is chosen when a pod has a node."""
        known = self._occupancy.volumes.classes.get(claim.class_name)
        return known if known is not None and known.waits and not claim.volume else None

    def _of_unbound(self, claim: VolumeClaim, budget: StepBudget) -> frozenset[str]:
        """The nodes where a volume can be chosen or made for a claim that waits for a pod."""
        if claim.node:
            return frozenset([claim.node])
        moment = self._occupancy.capacity.moment, self._occupancy.volumes.moment
        if self._moment != moment or len(self._kinds) >= most_sets(len(self._occupancy.nodes)):
            self._moment = moment
            self._kinds.clear()
        key = claim.class_name, claim.size
        volumes = self._occupancy.volumes
        count = len(volumes.available) + len(volumes.capacities.get(claim.class_name, ()))
        budget.spend_once(key, 1 + count // _VOLUMES_A_STEP)
        known = self._kinds.get(key)
        if known is None:
            known = self._kinds[key] = self._available(claim) | self._makeable(claim)
        return known

    def _available(self, claim: VolumeClaim) -> frozenset[str]:
        """The nodes that reach a volume which is there."""
        volumes = self._occupancy.volumes
        found: set[str] = set()
        for name in volumes.available:
            volume = volumes.volumes[name]
            if volume.class_name == claim.class_name and volume.size >= claim.size:
                if volume.affinity is None:
                    return frozenset(self._occupancy.nodes)
                found |= self._nodes.select(volume.affinity)
        return frozenset(found)

    def _makeable(self, claim: VolumeClaim) -> frozenset[str]:
        """The nodes for which a volume can be made."""
        volumes = self._occupancy.volumes
        known = self._class_that_waits(claim)
        if known is None or known.provisioner in ("", NO_PROVISIONER):
            return NO_NODES
        names = frozenset(self._occupancy.nodes)
        if known.topologies is not None:
            names = self._nodes.select(known.topologies)
        driver = volumes.drivers.get(known.provisioner)
        if driver is None or not driver.has_capacity:
            return names
        capacities = volumes.capacities.get(claim.class_name, {})
        return names & NO_NODES.union(
            *(
                self._nodes.labelled(capacity.nodes)
                for capacity in capacities.values()
                if capacity.nodes is not None and capacity.size >= claim.size
            )
        )

    def _attachable(self, pod: Pod, names: frozenset[str]) -> frozenset[str]:
        """Those of the nodes that can have its volumes besides those of their pods."""
        volumes = self._occupancy.volumes
        wanted: dict[str, set[str]] = {}
        for key in pod.volumes:
            wanted.setdefault(volumes.driver_of(key), set()).add(key)
        full = set()
        for name in names:
            known = volumes.limits.get(name)
            if known is None:
                continue
            used = volumes.on_node.get(name, {})
            for driver, claims in wanted.items():
                limit = known.by_driver.get(driver)
                if limit is None or len(used) + len(claims) <= limit:
                    continue
                new = sum(key not in used for key in claims)
                of_driver = sum(volumes.driver_of(key) == driver for key in used)
                if new and of_driver + new > limit:
                    full.add(name)
        return names - full if full else names
