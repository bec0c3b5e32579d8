"""What follows from a plan: what is written, and in which order.

A commit is the start of pods of one group. All of their claims are written before any of them
loses its gate, so that a gang starts whole. Interrupted anywhere, what is written so far is
tentative (`observe.claim`), and the next cycle completes it or takes it back.

A start has to wait for a later cycle if it rests on what is not written yet: on devices of a claim
that are taken back, or on a claim that another commit allocates.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from carina_dra.resource import Allocation, ConsumerReference, ResourceClaim
from controller.act import patch
from controller.model.group import Group
from controller.model.plan import Eviction, Plan
from controller.observe.mirror import Assumed, Mirror
from controller.observe.pod import ObservedPod
from controller.observe.standalone import Standing


@dataclass(frozen=True, slots=True)
class ClaimStart:
    """A claim that gets devices."""

    claim: ResourceClaim
    allocation: Allocation
    consumers: tuple[ConsumerReference, ...]
    """For whom it is reserved."""


@dataclass(frozen=True, slots=True)
class PodStart:
    """A pod that gets a node."""

    pod: ObservedPod
    node: str
    group: Group
    """Its group, as it was when the start was decided."""


@dataclass(frozen=True, slots=True)
class Commit:
    """The start of pods of a group, together."""

    group: str
    claims: tuple[ClaimStart, ...]
    """Those that have no devices yet."""
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
    reservations: tuple[ResourceClaim, ...]
    """Standalone claims that lack the controller's reservation."""
    endings: tuple[ResourceClaim, ...]
    """Standalone claims that lose it."""
    evictions: tuple[tuple[Eviction, ObservedPod], ...]


def acts(plan: Plan, mirror: Mirror) -> Acts:
    """What follows from a plan for the cluster as it is watched."""
    starts: dict[str, dict[str, Assumed]] = {}
    for start in plan.starts:
        group = mirror.state.pods[start.pod].group or ""
        starts.setdefault(group, {})[start.pod] = Assumed(
            start.node, dict(start.allocations), mirror.state.groups[group].preemptible
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
    return Acts(
        commits=tuple(
            _commit(mirror, group, pods)
            for group, pods in starts.items()
            if _is_ready(mirror, pods, unwanted)
        ),
        releases=tuple(
            Release(mirror.claims[claim], tuple(mirror.users_of(claim))) for claim in unwanted
        ),
        reservations=_standing(mirror, Standing.UNRESERVED),
        endings=_standing(mirror, Standing.ENDS),
        evictions=tuple(
            (each, mirror.pods[each.pod]) for each in plan.evictions if each.pod in mirror.pods
        ),
    )


def _standing(mirror: Mirror, standing: Standing) -> tuple[ResourceClaim, ...]:
    return tuple(
        mirror.claims[key]
        for key, each in mirror.standalone.items()
        if each.standing is standing and each.pod.key not in mirror.assumed
    )


def _is_ready(
    mirror: Mirror, pods: Mapping[str, Assumed], released: Mapping[str, Allocation]
) -> bool:
    """Whether all that a start rests on is written already, or with the start itself."""
    own: dict[str, Allocation] = {}
    for assumed in pods.values():
        own.update(assumed.allocations)
    if not own.keys().isdisjoint(released):
        return False
    if not all(
        claim in own or mirror.claims[claim].status.allocation is not None
        for pod in pods
        for claim in mirror.state.pods[pod].claims
    ):
        return False
    freed = {pool for allocation in released.values() for pool in _pools(allocation)}
    return all(pool not in freed for each in own.values() for pool in _pools(each))


def _pools(allocation: Allocation) -> Iterator[tuple[str, str]]:
    """The pools of its devices: those of a pool may share what a device has."""
    return ((result.driver, result.pool) for result in allocation.devices.results)


def _commit(mirror: Mirror, group: str, pods: Mapping[str, Assumed]) -> Commit:
    users: dict[str, list[ConsumerReference]] = {}
    for key in pods:
        pod = mirror.pods.get(key)
        if pod is None:  # it stands for a claim
            continue
        for claim in pod.claims:
            users.setdefault(claim, []).append(patch.consumer(pod))
    return Commit(
        group=group,
        claims=tuple(
            ClaimStart(
                mirror.claims[claim],
                allocation,
                tuple(users.get(claim, ())) + _own_reservation(mirror, claim),
            )
            for assumed in pods.values()
            for claim, allocation in assumed.allocations.items()
            if mirror.tentative().get(claim) != allocation
        ),
        pods=tuple(
            PodStart(mirror.pods[key], assumed.node, mirror.state.groups[group])
            for key, assumed in pods.items()
            if key in mirror.pods and mirror.pods[key].is_held
        ),
        assumed=pods,
    )


def _own_reservation(mirror: Mirror, claim: str) -> tuple[ConsumerReference, ...]:
    """The entry that holds a standalone claim from its allocation on."""
    return (patch.reservation(mirror.claims[claim]),) if claim in mirror.standalone else ()
