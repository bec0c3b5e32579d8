"""Explains why claims get no devices on a node: the devices of each pool, counted by reason.

An explanation is computed on request, from the input of the search.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from carina_dra.allocator.capacity import fits
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.matching import Matching
from carina_dra.allocator.node_state import NodeState
from carina_dra.allocator.pool import Candidate, IncompletePool, InvalidPool, Pool, ReadyPool
from carina_dra.allocator.request import Alternative, Claim
from carina_dra.allocator.search import Found, search
from carina_dra.allocator.taint import untolerated
from carina_dra.allocator.usage import PoolId
from carina_dra.resource import All, ExactCount

_STEPS: Final = 10_000
"""The step limit of each search that an explanation makes."""


@dataclass(frozen=True, slots=True)
class PoolExplanation:
    """The devices of a pool, tested for one request."""

    pool: PoolId
    devices: int
    rejected: Mapping[str, int]
    """The number of rejected devices by reason, the largest first."""
    suitable: int
    """The number of devices that each could serve the request."""

    def __str__(self) -> str:
        if not self.devices:
            return f"pool {self.pool}: {next(iter(self.rejected), 'no devices')}"
        parts = [f"{count} {reason}" for reason, count in self.rejected.items()]
        if self.suitable:
            parts.append(f"{self.suitable} suitable")
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return f"pool {self.pool}, {devices}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class RequestExplanation:
    """The devices of a node, tested for one request or one of its alternatives."""

    claim: str
    request: str
    """`req`, or `req/sub`."""
    wanted: str
    """How many devices it asks for, such as `2 devices`."""
    pools: tuple[PoolExplanation, ...]

    @property
    def suitable(self) -> int:
        """The number of devices that each could serve the request."""
        return sum(pool.suitable for pool in self.pools)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why claims get no devices on a node."""

    node: str
    requests: tuple[RequestExplanation, ...]
    together: tuple[str, ...]
    """Why the requests cannot be satisfied together, if each has enough devices alone."""

    def anonymous(self) -> tuple[str, ...]:
        """The explanation without names of nodes and pools, to be compared with those of others."""
        return (
            *(
                f"{request.request} {pool.devices} {pool.suitable} {sorted(pool.rejected.items())}"
                for request in self.requests
                for pool in request.pools
            ),
            *self.together,
        )

    def lines(self) -> Iterator[str]:
        """The explanation as indented text."""
        yield f"node {self.node}:"
        for request in self.requests:
            yield f"  claim {request.claim}, request {request.request}, {request.wanted}:"
            for pool in request.pools:
                yield f"    {pool}"
            if not request.pools:
                yield "    the node has no resource pool"
        for reason in self.together:
            yield f"  {reason}"


def explain(claims: Sequence[Claim], state: NodeState) -> Explanation:
    """Explains why `allocate` found no devices for the claims, or failed."""
    tests = _DeviceTests(state)
    requests = tuple(
        RequestExplanation(
            claim=alternative.claim,
            request=alternative.name,
            wanted=_wanted(alternative),
            pools=tuple(tests.explain_pool(alternative, pool) for pool in state.pools),
        )
        for claim in claims
        for request in claim.requests
        for alternative in request.alternatives
    )
    return Explanation(state.node.name, requests, tuple(_together(claims, state)))


class _DeviceTests:
    """The tests of the search, for each device alone."""

    def __init__(self, state: NodeState) -> None:
        self._usage = state.usage
        self._features = state.features
        self._ledger = Ledger(state.ready, state.usage, state.features)

    def explain_pool(self, alternative: Alternative, pool: Pool) -> PoolExplanation:
        match pool:
            case IncompletePool(id=name):
                return PoolExplanation(
                    name, 0, {"incomplete, because its driver has not published all slices": 1}, 0
                )
            case InvalidPool(id=name, reason=reason):
                return PoolExplanation(name, 0, {f"invalid: {reason}": 1}, 0)
            case ReadyPool(id=name, devices=devices):
                matching = Matching(alternative, devices, self._features)
                reasons = [
                    self._reason(alternative, matching, index, candidate)
                    for index, candidate in enumerate(devices)
                ]
                rejected = Counter(reason for reason in reasons if reason is not None)
                return PoolExplanation(
                    name, len(devices), dict(rejected.most_common()), reasons.count(None)
                )

    def _reason(
        self, alternative: Alternative, matching: Matching, index: int, candidate: Candidate
    ) -> str | None:
        """The first test that the device fails, as words after a number; None if it is suitable."""
        device = candidate.device
        admin = bool(alternative.admin_access)
        try:
            refused = matching.refused_by(index)
            amounts = matching.amounts(index) if self._features.consumable_capacity else {}
        except AllocationError as error:
            return f"with an error ({error})"
        if refused is not None:
            return refused
        if not admin and candidate.id in self._usage.dedicated:
            return "in use"
        taint = self._features.device_taints and untolerated(device, alternative.tolerations)
        if taint:
            value = f"={taint.value}" if taint.value else ""
            return f"tainted {taint.key}{value}:{taint.effect}"
        if amounts is None:
            return "without a requested capacity, or with a policy that forbids the amount"
        if not fits(amounts, device.capacity):
            return "with less capacity than requested"
        if admin:
            return None
        if not self._ledger.has_room(candidate, amounts):
            return "with less free capacity than requested"
        return self._counters(candidate)

    def _counters(self, candidate: Candidate) -> str | None:
        if not candidate.device.consumes_counters or self._ledger.is_shared(candidate.id):
            return None
        if not self._features.partitionable_devices:
            return "with counters, and the DRAPartitionableDevices feature is disabled"
        drawn = self._ledger.draw(candidate)
        if drawn is None:
            return "blocked by devices in use that consume the same counters"
        self._ledger.put_back(drawn)
        return None


def _together(claims: Sequence[Claim], state: NodeState) -> Iterator[str]:
    """The first request that cannot be satisfied together with those before it, and the reason."""

    def is_possible(asked: Sequence[Claim]) -> bool:
        try:
            outcome = search(asked, state, max_steps=_STEPS)
        except AllocationError:
            return False
        return isinstance(outcome, Found)

    for asked in _prefixes(claims):
        if is_possible(asked):
            continue
        last = asked[-1]
        request = last.requests[-1]
        alone = replace(last, requests=(request,), constraints=())
        if not is_possible([alone]):
            return
        freed = [replace(claim, constraints=()) for claim in asked]
        if not is_possible(freed):
            yield (
                f"claim {last.source.key}, request {request.name}: can be satisfied alone, but not "
                "together with the requests before it"
            )
            return
        for constraint in last.constraints:
            others = tuple(other for other in last.constraints if other is not constraint)
            if is_possible([*asked[:-1], replace(last, constraints=others)]):
                kind = type(constraint.rule).json_key
                yield (
                    f"claim {last.source.key}, request {request.name}: prevented by the constraint "
                    f"{kind} {constraint.rule.name}"
                )
        return


def _prefixes(claims: Sequence[Claim]) -> Iterator[list[Claim]]:
    """The claims up to each request, for every request."""
    for index, claim in enumerate(claims):
        for count in range(1, len(claim.requests) + 1):
            yield [*claims[:index], replace(claim, requests=claim.requests[:count])]


def _wanted(alternative: Alternative) -> str:
    match alternative.mode:
        case ExactCount(count=1):
            return "1 device"
        case ExactCount(count=count):
            return f"{count} devices"
        case All():
            return "all devices"
