"""Node resources: what claims need on the node, as values.

A resource has an identity that can be read back from the node, so that what is there can be
compared with what is wanted, by whichever process and after whatever has happened. `NodeResource`
is a closed union with a member for each kind; each kind has a port that carries it out. Device
nodes are no node resources: they are the node's, shared by all containers and never removed.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.devices.device import Device


@dataclass(frozen=True, slots=True, order=True)
class Identity:
    """What tells a node resource from all others on the node."""

    kind: str
    name: str
    """Unique within the kind, and found on the node."""
    gpu: str = ""
    """`gpu-<minor>` of the GPU under whose lock it is made and removed; empty if it needs none."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@dataclass(frozen=True, slots=True)
class ClaimSpec:
    """The CDI spec of a claim: how its devices get into containers. Named by the claim's UID."""

    kind: ClassVar[str] = "CDI spec"
    claim: NodeClaim
    devices: Mapping[str, Device]
    """By name, every device that the claim was allocated."""

    @property
    def identity(self) -> Identity:
        """Its own, which follows from the claim alone."""
        return spec_identity(self.claim.uid)


def spec_identity(uid: str) -> Identity:
    """Identifies the CDI spec of the claim with that UID."""
    return Identity(ClaimSpec.kind, uid)


NodeResource: TypeAlias = ClaimSpec

KINDS = (ClaimSpec.kind,)
"""In the order of making: a resource may need those of kinds before its own."""


class ResourceError(Exception):
    """A node resource cannot be observed, made or removed: names it and the remedy."""

    def __init__(self, problem: str, *, retriable: bool) -> None:
        super().__init__(problem)
        self.retriable = retriable
