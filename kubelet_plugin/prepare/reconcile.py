"""Reconciles the node's resources with those that are wanted: one algorithm for all cases.

A prepare, an unprepare, the rollback of a failed prepare, a changed allocation, a reboot and drift
differ only in which resources are concerned and which of them are wanted. This module does not
depend on any kind of resource.

Invariant: after `reconcile` returns, a concerned resource exists if and only if it is wanted, but
for those that are left behind, which are still observed. If the call is killed or fails, it has
changed concerned resources only, and repeating it completes it.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Generic, Protocol, TypeVar

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.prepare.resource import Identity, LeftBehindError, ResourceError


class AnyResource(Protocol):
    """A node resource of any kind."""

    @property
    def identity(self) -> Identity:
        """The identity of the resource."""


R = TypeVar("R", bound=AnyResource)
R_contra = TypeVar("R_contra", contravariant=True)
M = TypeVar("M")


class Ports(Protocol[R_contra, M]):
    """Carries out one step for a resource of any kind. Each step is idempotent."""

    @property
    def kinds(self) -> Sequence[str]:
        """All kinds, in the order of creation."""

    def observe(self) -> Collection[Identity]:
        """Returns what is on the node, including incomplete resources; raises ResourceError."""

    def owner(self, identity: Identity) -> ClaimReference | None:
        """Returns the claim that the resource names; None if it names none."""

    def make(self, resource: R_contra, made: Mapping[Identity, M]) -> M:
        """Creates the resource, or changes an existing one to be as wanted.

        `made` holds the results for the wanted resources of the kinds before its own. The result
        is what is known only after creation, such as the UUID of a MIG instance. Raises
        ResourceError.
        """

    def remove(self, identity: Identity) -> None:
        """Removes the resource, if it exists; raises ResourceError, or LeftBehindError of these."""

    def remove_leftover(self, identity: Identity) -> None:
        """Removes one that no claim needs, as `remove` does; waits for no other process.

        The node's lock may be held.
        """


@dataclass(frozen=True, slots=True)
class ResourcePlan(Generic[R]):
    """The steps in order: all removals come before all creations."""

    remove: tuple[Identity, ...]
    make: tuple[R, ...]


def plan(
    kinds: Sequence[str], concerned: Collection[Identity], wanted: Mapping[Identity, R]
) -> ResourcePlan[R]:
    """Returns the steps after which exactly the wanted ones of the concerned resources exist.

    Resources are created in the order of their kinds, and removed in the reverse order.
    """

    def position(identity: Identity) -> tuple[int, str]:
        return kinds.index(identity.kind), identity.name

    ordered = sorted(concerned, key=position)
    return ResourcePlan(
        remove=tuple(identity for identity in reversed(ordered) if identity not in wanted),
        make=tuple(wanted[identity] for identity in ordered if identity in wanted),
    )


def reconcile(
    ports: Ports[R, M], concerned: Collection[Identity], wanted: Mapping[Identity, R]
) -> Mapping[Identity, M]:
    """Removes each concerned resource that is not wanted, and creates each that is.

    Returns what is known of the created ones. A resource that is left behind is removed later, as
    one that no claim needs.

    Raises:
        ResourceError: a resource cannot be removed or created. After a failed removal, the other
            resources of its kind are still removed, but none that it may need. After a failed
            creation, none that may need the resource is created.
    """
    steps = plan(ports.kinds, concerned, wanted)
    failed: dict[str, ResourceError] = {}
    for identity in steps.remove:
        if failed.keys() - {identity.kind}:
            break
        try:
            ports.remove(identity)
        except LeftBehindError:
            continue  # it is observed still, and reported when it cannot be removed as a leftover
        except ResourceError as error:
            failed.setdefault(identity.kind, error)
    for first in failed.values():
        raise first
    made: dict[Identity, M] = {}
    for resource in steps.make:
        made[resource.identity] = ports.make(resource, made)
    return made
