"""Prepares claims on the node: reconciles what they need with what is there. Knows no kind."""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Generic, TypeVar

from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.failure import ClaimError, NodeResourceFailed
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.prepare.reconcile import Ports, Resource, reconcile
from kubelet_plugin.prepare.resource import Identity, ResourceError

R = TypeVar("R", bound=Resource)
M = TypeVar("M")


class Preparer(Generic[R, M]):
    """What `ClaimLifecycle` needs of the node."""

    def __init__(
        self,
        ports: Ports[R, M],
        *,
        identities: Callable[[NodeClaim], frozenset[Identity]],
        wanted: Callable[[Sequence[NodeClaim]], Mapping[Identity, R]],
        answer: Callable[[NodeClaim], tuple[PreparedDevice, ...]],
    ) -> None:
        """`identities` and `wanted` say what claims need, by identity and as it is now.

        `wanted` raises ClaimError where a claim cannot have what it needs; `answer` gives what the
        kubelet is told about a prepared claim.
        """
        self._ports = ports
        self._identities = identities
        self._wanted = wanted
        self._answer = answer

    def reconcile(self, concerned: Sequence[NodeClaim], live: Mapping[str, NodeClaim]) -> None:
        """Makes the node hold, of all that the concerned claims need, what live claims need.

        `live` has the live claims by UID.

        Raises:
            ClaimError: a claim cannot have what it needs, or a resource cannot be made or removed.
        """
        served = [claim for claim in concerned if live.get(claim.uid) == claim]
        resources = self._wanted(served) if served else {}
        unwanted = _union(self._identities(claim) for claim in concerned) - resources.keys()
        if unwanted:
            uids = {claim.uid for claim in concerned}
            others = (claim for uid, claim in live.items() if uid not in uids)
            unwanted -= _union(self._identities(claim) for claim in others)
        try:
            reconcile(self._ports, unwanted | resources.keys(), resources)
        except ResourceError as error:
            raise _failed(error, concerned[0].reference) from error

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        """Gives what is on the node and no live claim needs.

        Raises:
            ClaimError: the node cannot be observed.
        """
        needed = _union(self._identities(claim) for claim in live)
        return tuple(
            Leftover(identity.kind, identity.name, identity.gpu)
            for identity in self._observed()
            if identity not in needed
        )

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        """Whether a live claim needs it now."""
        identity = _identity(leftover)
        return any(identity in self._identities(claim) for claim in live)

    def remove(self, leftover: Leftover) -> None:
        """Removes what no claim needs.

        Raises:
            ClaimError: it cannot be removed.
        """
        try:
            self._ports.remove(_identity(leftover))
        except ResourceError as error:
            raise _failed(error, None) from error

    def owners(self) -> tuple[ClaimReference, ...]:
        """Gives the claims that resources on the node name.

        Raises:
            ClaimError: the node cannot be observed.
        """
        named = (self._ports.owner(identity) for identity in self._observed())
        return tuple(dict.fromkeys(owner for owner in named if owner is not None))

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        """Gives the answer for a claim that has everything it needs."""
        return self._answer(claim)

    def _observed(self) -> Sequence[Identity]:
        """What is on the node, in the order of removing."""
        kinds = list(self._ports.kinds)
        try:
            found = self._ports.observe()
        except ResourceError as error:
            raise _failed(error, None) from error
        return sorted(found, key=lambda identity: (-kinds.index(identity.kind), identity.name))


def _failed(error: ResourceError, claim: ClaimReference | None) -> ClaimError:
    return ClaimError(NodeResourceFailed(claim, str(error), error.retriable))


def _identity(leftover: Leftover) -> Identity:
    return Identity(leftover.kind, leftover.name, leftover.gpu)


def _union(sets: Iterable[frozenset[Identity]]) -> frozenset[Identity]:
    return frozenset[Identity]().union(*sets)
