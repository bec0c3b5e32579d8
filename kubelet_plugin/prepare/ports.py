"""The ports of all kinds of node resources: passes each step to the port of the kind."""

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.resource import KINDS, ClaimSpec, Identity, NodeResource


class NodePorts:
    """The ports of this node; implements `Ports`."""

    def __init__(self, cdi_specs: CdiSpecs) -> None:
        self._cdi_specs = cdi_specs

    @property
    def kinds(self) -> Sequence[str]:
        """All kinds, in the order of creation."""
        return KINDS

    def observe(self) -> Collection[Identity]:
        """Returns what is on the node; raises ResourceError."""
        return self._cdi_specs.observe()

    def owner(self, identity: Identity) -> ClaimReference | None:
        """Returns the claim that the resource names; None if it names none."""
        return self._cdi_specs.owner(identity.name) if identity.kind == ClaimSpec.kind else None

    def make(self, resource: NodeResource, made: Mapping[Identity, None]) -> None:
        """Creates or completes the resource; raises ResourceError or ClaimError."""
        match resource:
            case ClaimSpec():
                return self._cdi_specs.make(resource, made)
        assert_never(resource)

    def remove(self, identity: Identity) -> None:
        """Removes the resource, if it exists; raises ResourceError."""
        match identity.kind:
            case ClaimSpec.kind:
                self._cdi_specs.remove(identity.name)
            case kind:
                raise AssertionError(f"no port for {kind}")
