"""Why claims get nothing on a node: how many devices of which pool fell at which test.

Worked out only when somebody asks, from what the search was given.
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
"""For each question that an explanation asks the search."""
_WOULD_DO: Final = "would do"


@dataclass(frozen=True, slots=True)
class PoolVerdict:
    """What became of a pool's devices for one request."""

    pool: PoolId
    devices: int
    fell: Mapping[str, int]
    """How many for which reason, most first."""
    left: int
    """How many would do, each by itself."""

    def __str__(self) -> str:
        if not self.devices:
            return f"pool {self.pool}: {next(iter(self.fell), 'no devices')}"
        parts = [f"{count} {reason}" for reason, count in self.fell.items()]
        if self.left:
            parts.append(f"{self.left} {_WOULD_DO}")
        devices = "1 device" if self.devices == 1 else f"{self.devices} devices"
        return f"pool {self.pool}, {devices}: {', '.join(parts)}"


@dataclass(frozen=True, slots=True)
class RequestVerdict:
    """What became of the devices of a node for one request, or one of its alternatives."""

    claim: str
    request: str
    """`req`, or `req/sub`."""
    wanted: str
    """How many devices it asks for."""
    pools: tuple[PoolVerdict, ...]

    @property
    def left(self) -> int:
        """How many devices would do, each by itself."""
        return sum(pool.left for pool in self.pools)


@dataclass(frozen=True, slots=True)
class Explanation:
    """Why claims get nothing on a node."""

    node: str
    requests: tuple[RequestVerdict, ...]
    together: tuple[str, ...]
    """What cannot be had together, where each request by itself has enough."""

    def lines(self) -> Iterator[str]:
        """The explanation in words."""
        yield f"node {self.node}:"
        for request in self.requests:
            yield f"  claim {request.claim}, request {request.request}, {request.wanted}:"
            for pool in request.pools:
                yield f"    {pool}"
            if not request.pools:
                yield "    the node has no pool of devices"
        for reason in self.together:
            yield f"  {reason}"


def explain(claims: Sequence[Claim], state: NodeState) -> Explanation:
    """Explains why a search found nothing, or failed."""
    tests = _Tests(state)
    requests = tuple(
        RequestVerdict(
            claim=alternative.claim,
            request=alternative.name,
            wanted=_wanted(alternative),
            pools=tuple(tests.of_pool(alternative, pool) for pool in state.pools),
        )
        for claim in claims
        for request in claim.requests
        for alternative in request.alternatives
    )
    return Explanation(state.node.name, requests, tuple(_together(claims, state)))


class _Tests:
    def __init__(self, state: NodeState) -> None:
        self._usage = state.usage
        self._features = state.features
        self._ledger = Ledger(state.ready, state.usage, state.features)

    def of_pool(self, alternative: Alternative, pool: Pool) -> PoolVerdict:
        match pool:
            case IncompletePool(id=name):
                return PoolVerdict(name, 0, {"its driver is about to publish it": 1}, 0)
            case InvalidPool(id=name, reason=reason):
                return PoolVerdict(name, 0, {f"it is invalid: {reason}": 1}, 0)
            case ReadyPool(id=name, devices=devices):
                matching = Matching(alternative, devices, self._features)
                reasons = [
                    self._reason(alternative, matching, index, candidate)
                    for index, candidate in enumerate(devices)
                ]
                fell = Counter(reason for reason in reasons if reason is not None)
                return PoolVerdict(
                    name, len(devices), dict(fell.most_common()), reasons.count(None)
                )

    def _reason(
        self, alternative: Alternative, matching: Matching, index: int, candidate: Candidate
    ) -> str | None:
        """The first test at which a device falls; None if it would do."""
        device = candidate.device
        admin = bool(alternative.admin_access)
        try:
            refused = matching.refused_by(index)
            amounts = matching.amounts(index) if self._features.consumable_capacity else {}
        except AllocationError as error:
            return f"cannot be judged ({error})"
        if refused is not None:
            return refused
        if not admin and candidate.id in self._usage.dedicated:
            return "in use"
        taint = self._features.device_taints and untolerated(device, alternative.tolerations)
        if taint:
            value = f"={taint.value}" if taint.value else ""
            return f"tainted {taint.key}{value}:{taint.effect}"
        if amounts is None:
            return "without the capacity that is asked for"
        if not fits(amounts, device.capacity):
            return "too small"
        if admin:
            return None
        if not self._ledger.has_room(candidate, amounts):
            return "without enough capacity left"
        return self._counters(candidate)

    def _counters(self, candidate: Candidate) -> str | None:
        if not candidate.device.consumes_counters or self._ledger.is_shared(candidate.id):
            return None
        if not self._features.partitionable_devices:
            return "partitioned, which is switched off"
        drawn = self._ledger.draw(candidate)
        if drawn is None:
            return "excluded by other devices of the same GPU that are in use"
        self._ledger.put_back(drawn)
        return None


def _together(claims: Sequence[Claim], state: NodeState) -> Iterator[str]:
    """Finds the first request that cannot be had beside those before it, and why."""

    def can_be_had(asked: Sequence[Claim]) -> bool:
        try:
            outcome = search(asked, state, max_steps=_STEPS)
        except AllocationError:
            return False
        return isinstance(outcome, Found)

    for asked in _prefixes(claims):
        if can_be_had(asked):
            continue
        last = asked[-1]
        request = last.requests[-1]
        alone = replace(last, requests=(request,), constraints=())
        if not can_be_had([alone]):
            return
        freed = [replace(claim, constraints=()) for claim in asked]
        if not can_be_had(freed):
            yield (
                f"claim {last.source.key}, request {request.name} could be had alone, but not "
                "beside the requests before it"
            )
            return
        for constraint in last.constraints:
            others = tuple(each for each in last.constraints if each is not constraint)
            if can_be_had([*asked[:-1], replace(last, constraints=others)]):
                kind = type(constraint.rule).json_key
                yield (
                    f"claim {last.source.key}: {kind} {constraint.rule.name} stands in the way of "
                    f"request {request.name}"
                )
        return


def _prefixes(claims: Sequence[Claim]) -> Iterator[list[Claim]]:
    """All claims up to each request."""
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
