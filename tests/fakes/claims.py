"""Fakes of what `ClaimLifecycle` and `DraService` call, and a call that nobody gives up."""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from kubelet_plugin.claims.call import CallLimits
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.claims.drift import CdiSpecDrift, Drift
from kubelet_plugin.claims.failure import ClaimError, ClaimFailure
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.claims.repair_failure import FailedRepair
from kubelet_plugin.kubelet.dra_service import ClaimOperation

PATIENT = CallLimits(deadline=math.inf, abandoned=lambda: False)


@dataclass
class FakePreparer:
    """A node that holds one thing for each claim: which devices the claim has."""

    made: dict[str, NodeClaim] = field(default_factory=dict)
    removed: list[NodeClaim] = field(default_factory=list)
    """What was undone, in the order of events."""
    failing: ClaimFailure | None = None
    """Why nothing can be made."""
    stuck: dict[str, ClaimFailure] = field(default_factory=dict)
    """Why what is there for a UID cannot be removed."""
    making: Callable[[NodeClaim], object] = lambda _: None
    """Called before anything is made for a claim."""
    removing: Callable[[NodeClaim], object] = lambda _: None
    """Called before what is there for a claim is removed."""

    unfit: ClaimFailure | None = None
    """Why no claim is prepared that is not yet."""

    def refuse_unfit(self, claim: NodeClaim) -> None:
        if self.unfit is not None:
            raise ClaimError(self.unfit)

    def reconcile(
        self, concerned: Sequence[NodeClaim], live: Mapping[str, NodeClaim]
    ) -> Collection[Drift]:
        made = []
        for claim in concerned:
            if live.get(claim.uid) != claim:
                self._remove(claim.uid)
        for claim in concerned:
            if live.get(claim.uid) == claim:
                self.making(claim)
                if self.failing is not None:
                    raise ClaimError(self.failing)
                if self.made.get(claim.uid) != claim:
                    made.append(CdiSpecDrift(claim.uid, missing=claim.uid not in self.made))
                self.made[claim.uid] = claim
        return made

    def leftovers(self, live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        uids = sorted(self.made.keys() - {claim.uid for claim in live})
        return tuple(Leftover("thing", uid, gpu="") for uid in uids)

    def is_needed(self, leftover: Leftover, live: Collection[NodeClaim]) -> bool:
        return any(claim.uid == leftover.name for claim in live)

    def remove(self, leftover: Leftover) -> None:
        self._remove(leftover.name)

    def owners(self) -> tuple[ClaimReference, ...]:
        return tuple(claim.reference for claim in self.made.values())

    def prepared_devices(self, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
        return tuple(
            PreparedDevice(d.request, d.pool, d.device, (f"id-{d.device}",), d.share_id)
            for d in claim.devices
        )

    def _remove(self, uid: str) -> None:
        if uid in self.stuck:
            raise ClaimError(self.stuck[uid])
        if uid in self.made:
            self.removing(self.made[uid])
            self.removed.append(self.made.pop(uid))


@dataclass
class FakeReporter:
    """A CallReporter and ClaimReporter that records its calls."""

    waits: list[tuple[ClaimOperation, str, ClaimFailure]] = field(default_factory=list)
    ended: list[tuple[ClaimOperation, str, ClaimFailure | None]] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    """Seconds that each call in `ended` took."""
    rebuilt: list[tuple[str, str, int]] = field(default_factory=list)
    repaired: list[tuple[str, Drift]] = field(default_factory=list)
    failed_repairs: list[tuple[FailedRepair, ...]] = field(default_factory=list)
    """How many claims lacked something after each repair."""
    unrepaired: list[tuple[str, ClaimFailure]] = field(default_factory=list)
    stuck: list[tuple[str, ClaimFailure]] = field(default_factory=list)
    record_unusable: list[str] = field(default_factory=list)
    abandoned: list[str] = field(default_factory=list)
    partitions_left: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    """Of prepared claims."""

    def call_retried(
        self, operation: ClaimOperation, claim: ClaimReference, failure: ClaimFailure
    ) -> None:
        self.waits.append((operation, claim.name, failure))

    def call_ended(
        self,
        operation: ClaimOperation,
        claim: ClaimReference,
        seconds: float,
        failure: ClaimFailure | None,
    ) -> None:
        self.took.append(seconds)
        self.ended.append((operation, claim.name, failure))

    def checkpoint_rebuilt(self, kept: str, reason: str, rebuilt: int) -> None:
        self.rebuilt.append((kept, reason, rebuilt))

    def drift_repaired(self, claim: NodeClaim, drift: Drift) -> None:
        self.repaired.append((claim.name, drift))

    def repair_ended(self, failed: Collection[FailedRepair]) -> None:
        self.failed_repairs.append(tuple(failed))

    def repair_failed(self, claim: NodeClaim, failure: ClaimFailure) -> None:
        self.unrepaired.append((claim.name, failure))

    def leftover_not_removed(self, leftover: str, failure: ClaimFailure) -> None:
        self.stuck.append((leftover, failure))

    def kubelet_record_unusable(self, reason: str) -> None:
        self.record_unusable.append(reason)

    def claim_abandoned(self, claim: NodeClaim) -> None:
        self.abandoned.append(claim.name)

    def partitions_of_nvidia_left(self, claim: ClaimReference, partitions: Sequence[str]) -> None:
        self.partitions_left.append((claim.name, tuple(partitions)))

    def prepared_claims(self, count: int) -> None:
        self.counts.append(count)
