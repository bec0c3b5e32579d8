"""What follows from a plan: what is written, and in which order.

A commit is the start of pods of one group. All of their claims are written before any of them
loses its gate, so that a gang starts whole. Interrupted anywhere, what is written so far is
tentative (`observe.claim`), and the next cycle completes it or takes it back.

A claim that has its devices already is reserved for the pods, too. Otherwise the last of its other
users could end before kube-scheduler reserves it, and kube-controller-manager would take its
devices back. This is no extra write, since kube-scheduler finds the entry. It also holds for
standalone claims: the controller's own reservation ends when their time is over.

A start has to wait for a later cycle if it rests on what is not written yet: on devices of a claim
that are taken back, on a claim that another commit allocates or reserves, or on what kube-scheduler
is choosing (`act.in_flight`). Claims that kube-scheduler makes are not written here.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeAlias

from carina_dra.resource import Allocation, ConsumerReference, ResourceClaim
from controller.act import patch
from controller.act.in_flight import InFlight, pools_of
from controller.engine.model.group import Group
from controller.engine.model.plan import Eviction, Plan, Start
from controller.observe.group_registry import GROUPS
from controller.observe.mirror import CLAIMS, PODS, Assumed, Mirror
from controller.observe.pod import ObservedPod
from controller.observe.standalone import key_of_standalone

MOST_CONSUMERS: Final = 256
"""Entries that `status.reservedFor` may have (resource.k8s.io, ResourceClaimReservedForMaxSize)."""


@dataclass(frozen=True, slots=True)
class ClaimStart:
    """A claim that gets devices."""

    claim: ResourceClaim
    allocation: Allocation
    consumers: tuple[ConsumerReference, ...]
    """For whom it is reserved."""


@dataclass(frozen=True, slots=True)
class ClaimUse:
    """A claim that has devices, and gets further users."""

    claim: ResourceClaim
    consumers: tuple[ConsumerReference, ...]
    """For whom it is reserved in addition."""


ClaimWrite: TypeAlias = ClaimStart | ClaimUse


@dataclass(frozen=True, slots=True)
class PodStart:
    """A pod that gets a node."""

    pod: ObservedPod
    node: str
    group: Group
    """Its group, as it was when the start was decided."""
    is_chosen_for: bool = False
    """Whether kube-scheduler may choose devices for it. Elsewhere it would take those of others."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The start of pods of a group, together."""

    group: str
    claims: tuple[ClaimWrite, ...]
    """Those that have no devices yet, or are not reserved for the pods yet."""
    pods: tuple[PodStart, ...]
    """Those that the gate holds."""
    assumed: Mapping[str, Assumed]
    """What they get, by pod."""


@dataclass(frozen=True, slots=True)
class Release:
    """A claim whose tentative allocation is not wanted any more."""

    claim: ResourceClaim
    pods: tuple[ObservedPod, ...]
    """Those that refer to it, which the gate holds."""


@dataclass(frozen=True, slots=True)
class Acts:
    """All that follows from a plan."""

    commits: tuple[Commit, ...]
    releases: tuple[Release, ...]
    endings: tuple[ResourceClaim, ...]
    """Claims that lose the controller's reservation."""
    evictions: tuple[tuple[Eviction, ObservedPod], ...]
    failed: tuple[str, ...] = ()
    """The groups that were to start, but are set aside."""


def acts(plan: Plan, mirror: Mirror) -> Acts:
    """What follows from a plan for the cluster as it is watched."""
    by_group: dict[str, list[Start]] = {}
    for start in plan.starts:
        by_group.setdefault(mirror.state.occupancy.pods[start.pod].group or "", []).append(start)
    for_each = mirror.set_aside.each
    starts = dict(
        for_each(
            GROUPS, "assumed", by_group, lambda key: [(key, _assumed(mirror, key, by_group[key]))]
        )
    )
    wanted: dict[str, Allocation] = {}
    for start in plan.starts:
        wanted.update(start.allocations)
    for nomination in plan.nominations:
        wanted.update(nomination.allocations)
    unwanted = {
        claim: allocation
        for claim, allocation in mirror.tentative().items()
        if wanted.get(claim) != allocation
    }
    evictions = {
        eviction.pod: eviction for eviction in plan.evictions if eviction.pod in mirror.pods
    }
    commits = tuple(_commits(mirror, starts, unwanted))
    return Acts(
        commits=commits,
        releases=tuple(for_each(CLAIMS, "released", unwanted, partial(_release, mirror))),
        endings=tuple(
            for_each(CLAIMS, "no longer reserved", mirror.ending, partial(_ending, mirror))
        ),
        evictions=tuple(
            for_each(PODS, "evicted", evictions, lambda key: [(evictions[key], mirror.pods[key])])
        ),
        failed=tuple(
            key for key in by_group if mirror.set_aside.until(GROUPS, key) > mirror.state.now
        ),
    )


def _assumed(mirror: Mirror, group: str, starts: Iterable[Start]) -> Mapping[str, Assumed]:
    preemptible = mirror.state.occupancy.groups[group].preemptible
    made: dict[str, Assumed] = {}
    for start in starts:
        keys = _planned(mirror, start.pod)
        own = {claim: of for claim, of in start.allocations if claim not in keys}
        planned = {claim: of for claim, of in start.allocations if claim in keys}
        made[start.pod] = Assumed(start.node, own, preemptible, planned)
    return made


def _planned(mirror: Mirror, pod: str) -> set[str]:
    """The claims of a pod that kube-scheduler is to make."""
    return {claim for _, claim in mirror.state.occupancy.pods[pod].planned}


def _release(mirror: Mirror, claim: str) -> Iterator[Release]:
    yield Release(mirror.claims[claim], tuple(mirror.users_of(claim)))


def _ending(mirror: Mirror, claim: str) -> Iterator[ResourceClaim]:
    if key_of_standalone(claim) not in mirror.assumed:
        yield mirror.claims[claim]


def _is_ready(
    mirror: Mirror, pods: Mapping[str, Assumed], released: Mapping[str, Allocation]
) -> bool:
    """Whether all that a start rests on is written already, or with the start itself."""
    own: dict[str, Allocation] = {}
    for assumed in pods.values():
        own.update(assumed.allocations)
    claims = {
        claim
        for pod in pods
        for claim in mirror.state.occupancy.pods[pod].claims
        if claim not in _planned(mirror, pod)
    }
    if not claims.isdisjoint(released):
        return False
    if not all(
        claim in own
        or (mirror.claims[claim].status.allocation is not None and claim not in mirror.ending)
        for claim in claims
    ):
        return False
    freed = set(pools_of(released.values()))
    planned = (allocation for assumed in pods.values() for allocation in assumed.planned.values())
    return freed.isdisjoint(pools_of((*own.values(), *planned)))


def _commits(
    mirror: Mirror,
    starts: Mapping[str, Mapping[str, Assumed]],
    released: Mapping[str, Allocation],
) -> Iterator[Commit]:
    """The commits of those groups whose start need not wait.

    Each writes the entries of all groups that start now into the claims that it writes.
    """
    users: dict[str, list[ConsumerReference]] = {}
    found = mirror.set_aside.each(
        GROUPS, "looked at", starts, lambda key: _users(mirror, starts[key])
    )
    for claim, user in found:
        users.setdefault(claim, []).append(user)
    written: set[str] = set()
    in_flight = InFlight(mirror)

    def commit_of(group: str) -> Iterator[Commit]:
        pods = starts[group]
        if not _is_ready(mirror, pods, released) or in_flight.is_in_the_way(group, pods):
            return
        uses = _uses(mirror, pods, users)
        if any(key in written or _is_being_reserved(mirror, key) for key in uses):
            return
        allocated = [
            ClaimStart(mirror.claims[claim], allocation, _consumers(mirror, claim, starts, users))
            for assumed in pods.values()
            for claim, allocation in assumed.allocations.items()
            if mirror.tentative().get(claim) != allocation
        ]
        yield Commit(
            group=group,
            claims=(*allocated, *uses.values()),
            pods=tuple(
                PodStart(
                    mirror.pods[key],
                    assumed.node,
                    mirror.state.occupancy.groups[group],
                    is_chosen_for=bool(_planned(mirror, key)),
                )
                for key, assumed in pods.items()
                if key in mirror.pods and mirror.pods[key].is_held
            ),
            assumed=pods,
        )
        written.update(uses)
        in_flight.add(group, pods)

    yield from mirror.set_aside.each(GROUPS, "started", starts, commit_of)


_Users: TypeAlias = Mapping[str, Sequence[ConsumerReference]]


def _users(mirror: Mirror, pods: Iterable[str]) -> Iterator[tuple[str, ConsumerReference]]:
    """The claims of pods that start, each with the pod as its consumer."""
    for key in pods:
        pod = mirror.pods.get(key)
        if pod is None:  # it stands for a claim
            continue
        for claim in dict.fromkeys(pod.claims):
            yield claim, patch.consumer(pod)


def _consumers(
    mirror: Mirror, claim: str, starts: Container[str], users: _Users
) -> tuple[ConsumerReference, ...]:
    """For whom a claim is reserved with its allocation, where these groups start.

    For itself only if it starts, within the quota of its queue: its pods may be beyond that.
    """
    own = (patch.reservation(mirror.claims[claim]),) if key_of_standalone(claim) in starts else ()
    return (*own, *users.get(claim, ()))[:MOST_CONSUMERS]


def _uses(mirror: Mirror, pods: Mapping[str, Assumed], users: _Users) -> dict[str, ClaimUse]:
    """The claims with devices that are to be reserved for pods of a commit, by key.

    A claim without room for an entry is left to kube-scheduler.
    """
    own = [mirror.pods[pod] for pod in pods if pod in mirror.pods]
    uids = {pod.uid for pod in own}
    allocated = {claim for assumed in pods.values() for claim in assumed.allocations}
    uses: dict[str, ClaimUse] = {}
    for key in dict.fromkeys(claim for pod in own for claim in pod.claims):
        if key in allocated and key not in mirror.tentative():
            continue
        claim = mirror.claims[key]
        reserved = {entry.uid for entry in claim.status.reserved_for}
        lacking = [entry for entry in users[key] if entry.uid not in reserved]
        consumers = tuple(lacking[: MOST_CONSUMERS - len(claim.status.reserved_for)])
        if any(entry.uid in uids for entry in consumers):
            uses[key] = ClaimUse(claim, consumers)
    return uses


def _is_being_reserved(mirror: Mirror, claim: str) -> bool:
    """Whether a commit that is being written reserves a claim; two such writes would conflict."""
    reserved = {entry.uid for entry in mirror.claims[claim].status.reserved_for}
    return any(
        pod.key in mirror.assumed and pod.uid not in reserved for pod in mirror.users_of(claim)
    )
