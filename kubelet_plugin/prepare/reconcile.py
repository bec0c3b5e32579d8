"""Makes the node hold the resources that are wanted, and no others: one diff for every occasion.

A prepare, an unprepare, the rollback of a failed prepare, a changed allocation, a reboot and drift
differ only in which resources are concerned and which of them are wanted. Nothing here knows a kind
of resource.

Invariant: after `reconcile` returns, every concerned resource that is wanted is there, and no other
concerned one is. Killed at any point, or ended by an error, it has changed concerned resources
only, and the same call completes it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.prepare.resource import Identity, ResourceError


class Resource(Protocol):
    """A node resource of any kind."""

    @property
    def identity(self) -> Identity:
        """Its own."""


R = TypeVar("R", bound=Resource)
R_contra = TypeVar("R_contra", contravariant=True)
M = TypeVar("M")


class Ports(Protocol[R_contra, M]):
    """Carries out one step for a resource of any kind. Each step is idempotent."""

    @property
    def kinds(self) -> Sequence[str]:
        """Every kind, in the order of making."""

    def observe(self) -> Collection[Identity]:
        """Gives what is on the node, half-made resources included; raises ResourceError."""

    def owner(self, identity: Identity) -> ClaimReference | None:
        """Gives the claim that the resource itself names; None if it names none."""

    def make(self, resource: R_contra, made: Mapping[Identity, M]) -> M:
        """Makes the node hold the resource exactly as it is wanted, whatever is there.

        `made` has what making gave of all wanted resources of the kinds before its own. Gives what
        is known only now, such as the UUID of a new MIG instance. Raises ResourceError.
        """

    def remove(self, identity: Identity) -> None:
        """Removes the resource, if it is there; raises ResourceError."""


@dataclass(frozen=True, slots=True)
class Plan(Generic[R]):
    """Steps, in their order: everything is removed before anything is made."""

    remove: tuple[Identity, ...]
    make: tuple[R, ...]


def plan(
    kinds: Sequence[str], concerned: Collection[Identity], wanted: Mapping[Identity, R]
) -> Plan[R]:
    """Decides the steps that leave, of all concerned resources, exactly the wanted ones.

    Resources are made in the order of their kinds, and removed in the opposite order.
    """

    def position(identity: Identity) -> tuple[int, str]:
        return kinds.index(identity.kind), identity.name

    ordered = sorted(concerned, key=position)
    return Plan(
        remove=tuple(identity for identity in reversed(ordered) if identity not in wanted),
        make=tuple(wanted[identity] for identity in ordered if identity in wanted),
    )


def reconcile(
    ports: Ports[R, M], concerned: Collection[Identity], wanted: Mapping[Identity, R]
) -> None:
    """Removes each concerned resource that is not wanted, and makes each that is.

    Raises:
        ResourceError: a resource cannot be removed, after the others of its kind and before any
            that it may still need; or one cannot be made, before any that may need it.
    """
    steps = plan(ports.kinds, concerned, wanted)
    failed: dict[str, ResourceError] = {}
    for identity in steps.remove:
        if failed.keys() - {identity.kind}:
            break
        try:
            ports.remove(identity)
        except ResourceError as error:
            failed.setdefault(identity.kind, error)
    for first in failed.values():
        raise first
    made: dict[Identity, M] = {}
    for resource in steps.make:
        made[resource.identity] = ports.make(resource, made)
