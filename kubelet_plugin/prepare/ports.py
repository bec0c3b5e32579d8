"""The ports of all kinds of node resources, joined: each step goes to the port of its kind."""

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.resource import KINDS, ClaimSpec, Identity, NodeResource


class NodePorts:
    """The `Ports` of this node."""

    def __init__(self, cdi_specs: CdiSpecs) -> None:
        self._cdi_specs = cdi_specs

    @property
    def kinds(self) -> Sequence[str]:
        """Every kind, in the order of making."""
        return KINDS

    def observe(self) -> Collection[Identity]:
        """Gives what is on the node; raises ResourceError."""
        return self._cdi_specs.observe()

    def owner(self, identity: Identity) -> ClaimReference | None:
        """Gives the claim that the resource itself names; None if it names none."""
        return self._cdi_specs.owner(identity.name) if identity.kind == ClaimSpec.kind else None

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
