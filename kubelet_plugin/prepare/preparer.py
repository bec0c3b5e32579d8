"""Prepares claims on the node: reconciles what they need with what exists, for any kind."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.drift import DriftNote
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.reconcile import AnyResource, Ports, reconcile
from kubelet_plugin.prepare.resource import Identity, ResourceError

R = TypeVar("R", bound=AnyResource)
M = TypeVar("M")


class Preparer(Generic[R, M]):
    """Implements `NodePreparer`, for resources of any kind."""

    def __init__(
        self,
        ports: Ports[R, M],
        *,
        identities: Callable[[NodeClaim], frozenset[Identity]],
        wanted: Callable[[Sequence[NodeClaim], Collection[NodeClaim]], Mapping[Identity, R]],
        answer: Callable[[NodeClaim], tuple[PreparedDevice, ...]],
        refuse_unfit: Callable[[NodeClaim], None] = lambda _: None,
        set_up: Callable[[NodeClaim, Mapping[Identity, M]], None] = lambda *_: None,
        notes: DriftNotes | None = None,
    ) -> None:
        """`identities` returns what a claim may need; `wanted`, what claims need now.

        Two claims may need one resource only if both have a device on its GPU.

        `wanted` gets these claims and all live ones, and raises ClaimError if a claim cannot have
        what it needs. `refuse_unfit` raises ClaimError if a claim is not to be prepared that is not
        prepared yet. `answer` returns the devices of a prepared claim, as the kubelet receives
        them. `set_up` is told of each claim that has what it needs, and what is known of that. It
        must return at once. `notes` is what the ports note in.
        """
        self._ports = ports
        self._identities = identities
        self._wanted = wanted
        self._answer = answer
        self._refuse_unfit = refuse_unfit
        self._set_up = set_up
        self._notes = notes or DriftNotes()

    def refuse_unfit(self, claim: NodeClaim) -> None:
        """Refuses a claim that is not prepared yet and has a device that gets no new work.

        Raises:
            ClaimError: a device of the claim is unhealthy.
        """
        self._refuse_unfit(claim)

    def reconcile(
        self, concerned: Sequence[NodeClaim], live: Mapping[str, NodeClaim]
    ) -> Collection[DriftNote]:
        """Creates or removes what the concerned claims need, so that the node agrees with `live`.

        `live` has the live claims by UID. Returns what had to be made.

        Raises:
            ClaimError: a claim cannot have what it needs, or a resource cannot be created or
                removed.
        """
        served = [claim for claim in concerned if live.get(claim.uid) == claim]
        resources = self._wanted(served, live.values()) if served else {}
        unwanted = _union(self._identities(claim) for claim in concerned) - resources.keys()
        if unwanted:
            uids = {claim.uid for claim in concerned}
            gpus = {identity.gpu for identity in unwanted}
            others = (
                claim
                for uid, claim in live.items()
                if uid not in uids and not claim.gpus.isdisjoint(gpus)
            )
            unwanted -= _union(self._identities(claim) for claim in others)
        try:
            with self._notes.collected() as found:
                made = reconcile(self._ports, unwanted | resources.keys(), resources)
        except ResourceError as error:
            raise _failed(error, concerned[0].reference) from error
        for claim in served:
            self._set_up(claim, made)
        return found

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        """Returns the resources on the node that no live claim needs.

        Raises:
            ClaimError: the node's resources cannot be read.
        """
        needed = _union(self._identities(claim) for claim in live)
        return tuple(
            Leftover(identity.kind, identity.name, identity.gpu)
            for identity in self._observed()
            if identity not in needed
        )

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        """Returns whether a live claim needs the resource."""
        identity = _identity(leftover)
        return any(identity in self._identities(claim) for claim in live)

    def remove(self, leftover: Leftover) -> None:
        """Removes a resource that no claim needs.

        Raises:
            ClaimError: the resource cannot be removed.
        """
        try:
            self._ports.remove_leftover(_identity(leftover))
        except ResourceError as error:
            raise _failed(error, None) from error

    def owners(self) -> tuple[ClaimReference, ...]:
        """Returns the claims that resources on the node name.

        Raises:
            ClaimError: the node's resources cannot be read.
        """
        try:
            named = [self._ports.owner(identity) for identity in self._observed()]
        except ResourceError as error:
            raise _failed(error, None) from error
        return tuple(dict.fromkeys(owner for owner in named if owner is not None))

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        """Returns the devices of a prepared claim, as the kubelet receives them."""
        return self._answer(claim)

    def _observed(self) -> Sequence[Identity]:
        """Returns what is on the node, in the order of removal."""
        kinds = list(self._ports.kinds)
        try:
            observed = self._ports.observe()
        except ResourceError as error:
            raise _failed(error, None) from error
        return sorted(observed, key=lambda identity: (-kinds.index(identity.kind), identity.name))


def _failed(error: ResourceError, claim: ClaimReference | None) -> ClaimError:
    return ClaimError(NodeResourceFailed(claim, error.failure))


def _identity(leftover: Leftover) -> Identity:
    return Identity(leftover.kind, leftover.name, leftover.gpu)


def _union(sets: Iterable[frozenset[Identity]]) -> frozenset[Identity]:
    return frozenset[Identity]().union(*sets)
