"""Prepares claims on the node: joins what they need to the ports that carry it out."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import assert_never

from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.devices.device import Device
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.reconcile import reconcile
from kubelet_plugin.prepare.resource import (
    KINDS,
    ClaimSpec,
    Identity,
    NodeResource,
    ResourceError,
)
from kubelet_plugin.prepare.wanted import identities, wanted


class NodePorts:
    """Every kind of node resource, each by its own port."""

    def __init__(self, cdi_specs: CdiSpecs) -> None:
        self._cdi_specs = cdi_specs

    @property
    def kinds(self) -> Sequence[str]:
        """Every kind, in the order of making."""
        return KINDS

    def observe(self) -> Collection[Identity]:
        """Gives what is on the node; raises ResourceError."""
        return self._cdi_specs.observe()

    def make(self, resource: NodeResource, made: Mapping[Identity, None]) -> None:
        """Makes the node hold the resource; raises ResourceError or ClaimError."""
        match resource:
            case ClaimSpec():
                return self._cdi_specs.make(resource, made)
        assert_never(resource)

    def remove(self, identity: Identity) -> None:
        """Removes the resource, if it is there; raises ResourceError."""
        match identity.kind:
            case ClaimSpec.kind:
                self._cdi_specs.remove(identity.name)
            case kind:
                raise AssertionError(f"no port for {kind}")


class Preparer:
    """What `ClaimLifecycle` needs of the node."""

    def __init__(
        self, *, driver: str, devices: Callable[[], Mapping[str, Device]], cdi_specs: CdiSpecs
    ) -> None:
        """`devices` gives the node's devices by name, as they are now."""
        self._driver = driver
        self._devices = devices
        self._cdi_specs = cdi_specs
        self._ports = NodePorts(cdi_specs)

    def reconcile(self, concerned: Sequence[NodeClaim], live: Collection[NodeClaim]) -> None:
        """Makes the node hold, of all that the concerned claims need, what live claims need.

        Raises:
            ClaimError: a device is missing or unhealthy, or a resource cannot be made or removed.
        """
        uids = {claim.uid for claim in concerned}
        resources = wanted([claim for claim in concerned if claim in live], self._devices())
        needed_by_others = _union(identities(claim) for claim in live if claim.uid not in uids)
        scope = _union(identities(claim) for claim in concerned)
        try:
            reconcile(self._ports, scope - needed_by_others | resources.keys(), resources)
        except ResourceError as error:
            reference = concerned[0].reference
            raise ClaimError(NodeResourceFailed(reference, str(error), error.retriable)) from error

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        """Gives what is on the node and no live claim needs.

        Raises:
            ClaimError: the node cannot be observed.
        """
        needed = _union(identities(claim) for claim in live)
        try:
            found = self._ports.observe()
        except ResourceError as error:
            raise ClaimError(NodeResourceFailed(None, str(error), error.retriable)) from error
        return tuple(
            Leftover(identity.kind, identity.name, gpus=frozenset())
            for identity in sorted(set(found) - needed)
        )

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        """Whether a live claim needs it now."""
        identity = Identity(leftover.kind, leftover.name)
        return any(identity in identities(claim) for claim in live)

    def remove(self, leftover: Leftover) -> None:
        """Removes what no claim needs.

        Raises:
            ClaimError: it cannot be removed.
        """
        try:
            self._ports.remove(Identity(leftover.kind, leftover.name))
        except ResourceError as error:
            raise ClaimError(NodeResourceFailed(None, str(error), error.retriable)) from error

    def owners(self) -> tuple[ClaimReference, ...]:
        """Gives the claims for which there is something on the node, as far as that can be told.

        Raises:
            ClaimError: the node cannot be observed.
        """
        try:
            found = self._cdi_specs.observe()
        except ResourceError as error:
            raise ClaimError(NodeResourceFailed(None, str(error), error.retriable)) from error
        owners = (self._cdi_specs.owner(identity.name) for identity in sorted(found))
        return tuple(owner for owner in owners if owner is not None)

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        """Gives the answer for a claim that has everything it needs."""
        return prepared_devices(self._driver, claim)


def _union(sets: Iterable[frozenset[Identity]]) -> frozenset[Identity]:
    return frozenset[Identity]().union(*sets)
