"""Chooses the best node of a cluster for claims, and the claims' devices on it."""

import json
from collections import OrderedDict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Final, TypeAlias, assert_never
from weakref import WeakValueDictionary

from carina_dra.allocator.allocate import Allocated, Chosen, write
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.explanation import Explanation, explain
from carina_dra.allocator.features import Features
from carina_dra.allocator.preference import Policy
from carina_dra.allocator.request import Claim, check
from carina_dra.placement.bounds.demand import Demand
from carina_dra.placement.choice.distances import NodeDistances
from carina_dra.placement.choice.findings import ExpiredError, Failed, Findings, NodeUndecided
from carina_dra.placement.choice.order import NodeLoss, NodeOrder
from carina_dra.placement.choice.ranking import Ranking
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.price import KIND_PER_NODE, LOSSES, QUESTION
from carina_dra.resource import (
    All,
    DeviceClass,
    DeviceClassSpec,
    ExactCount,
    ResourceClaim,
    ResourceClaimSpec,
    encode,
)
from carina_dra.step_budget import StepBudget
from carina_dra.work import Work

_EXACT: Final = 8
_MOST: Final = 64
"""Orders of nodes are kept for each number of devices up to 8, then for powers of two up to 64."""
_REMEMBERED: Final = 1_000_000
"""The number of findings of nodes that are remembered, over all kinds of requests."""
_HEAP_SHARE: Final = 10
"""An entry in the order of nodes takes a tenth of the memory of a finding."""
_KIND: Final = 80
"""Fixed cost of a cached kind of requests, in findings."""
_CHARACTERS: Final = 16
"""So many characters of a request take the memory of a finding: its selectors are compiled."""
_BETWEEN_LOOKS: Final = 16
"""After how many new kinds of requests it is seen to how much is remembered."""


@dataclass(frozen=True, slots=True)
class PlacedClaims:
    """A node for the claims, and their devices on it."""

    node: str
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """No node has the devices that the claims ask for."""

    undecided: int
    """On how many nodes it is not known, since a limit was reached; 0 if the result is certain."""
    failed: tuple[str, ...]
    """Nodes of which something is wrong, as `node: reason`."""


Placement: TypeAlias = PlacedClaims | Unplaceable
_Kind: TypeAlias = tuple[str, Hashable]
"""Equal for requests for which the same is known of nodes: their key, and that of the loss."""
_OrderKey: TypeAlias = tuple[int, bool]


TextOf: TypeAlias = Callable[[ResourceClaimSpec | DeviceClassSpec], str]


def text_of(spec: ResourceClaimSpec | DeviceClassSpec) -> str:
    """What a claim or class asks for, however it is configured; equal for equal specs."""
    match spec:
        case ResourceClaimSpec(devices=devices):
            return json.dumps(encode(replace(devices, config=())), sort_keys=True)
        case DeviceClassSpec():
            return json.dumps(encode(spec), sort_keys=True)
    assert_never(spec)


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Claims that must be allocated on one node together."""

    claims: tuple[Claim, ...]
    key: str
    """Equal for requests whose claims and classes ask for the same, however it is configured."""

    @property
    def least_devices(self) -> int:
        """How many devices the claims get at least, not counting those with admin access."""
        return sum(
            min(0 if one.admin_access else _count(one.mode) for one in request.alternatives)
            for claim in self.claims
            for request in claim.requests
        )

    @classmethod
    def of(
        cls,
        claims: Iterable[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        features: Features,
        text_of: TextOf = text_of,
    ) -> "PlacementRequest":
        """Checks the claims; `classes` has the device classes by name.

        `text_of` may remember the texts of specs, which claims of one template share.

        Raises:
            AllocationError: no node can satisfy a claim, whatever its devices.
        """
        checked = tuple(check(claim, classes, features) for claim in claims)
        alternatives = [
            alternative
            for claim in checked
            for request in claim.requests
            for alternative in request.alternatives
        ]
        classes_used = [alternative.device_class for alternative in alternatives]
        used = {device_class.metadata.name: device_class for device_class in classes_used}
        of_claims = ",".join(text_of(claim.source.spec) for claim in checked)
        of_classes = ",".join(text_of(used[name].spec) for name in sorted(used))
        return cls(checked, f"[{of_claims}] [{of_classes}]")


@dataclass(frozen=True, slots=True)
class NodeGroup:
    """Nodes that have no devices for the claims for the same reasons."""

    explanation: Explanation
    """That of the first of the nodes."""
    nodes: tuple[str, ...]


class Placer:
    """Finds the best nodes of a cluster, and remembers what it found until the nodes change."""

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        *,
        new_share_id: Callable[[], str],
        max_steps: int | None = None,
    ) -> None:
        """`new_share_id` and `max_steps`, a limit per node, are those of `allocate`."""
        self._cluster = cluster
        self._policy = policy
        self._new_share_id = new_share_id
        self._max_steps = max_steps
        self._distances: dict[_OrderKey, NodeDistances] = {}
        self._orders: dict[_OrderKey, NodeOrder] = {}
        self._loss_orders = WeakValueDictionary[tuple[_OrderKey, NodeLoss], NodeOrder]()
        """Each is kept by the rankings that use it: tenants choose how many losses there are."""
        self._wide_moment = cluster.wide_moment
        self._taint_moment = cluster.taint_moment
        self._epoch = 0
        """That of the losses of nodes."""
        self._rankings: OrderedDict[_Kind, Ranking] = OrderedDict()
        self._asked = 0
        self._unlimited = StepBudget.unlimited()
        self._payer: StepBudget | None = None
        self._paid_kinds: set[_Kind] = set()
        """The kinds of requests that the last budget has paid for."""

    def place(
        self,
        request: PlacementRequest,
        nodes: Collection[str] | None = None,
        *,
        expired: Callable[[], bool] | None = None,
        budget: StepBudget | None = None,
        loss: NodeLoss | None = None,
    ) -> Placement:
        """The best of these nodes, or of all, and the devices that the claims get there.

        Of equally good nodes, the first by name is chosen. The search ends without a node when
        `expired` returns true; without it, the answer depends on nothing but the cluster. The
        cluster does not change; `Cluster.allocate` records the allocation. Without a `budget` there
        is no limit. A `loss` is what the use of nodes costs instead of what the policy says.

        Raises:
            OutOfStepsError: the budget does not suffice, so that the question is undecided.
            AllocationError: the attempt fails on a node, which is named, and with it on all: with
                policy `upstream`, or since an expression does not compile.
        """
        nodes = _as_set(nodes)
        budget = self._unlimited if budget is None else budget
        ranking = self._ranking(request, budget, loss)
        undecided = 0
        try:
            for placed in self._best(ranking, request, nodes, expired, budget):
                return placed
        except ExpiredError:
            undecided = 1  # at least
        found = dict(ranking.findings.of(nodes))
        if undecided:
            undecided = max(1, len(self._cluster.nodes if nodes is None else nodes) - len(found))
        undecided += sum(isinstance(finding, NodeUndecided) for finding in found.values())
        failed = (
            f"{name}: {_about(request.claims, ranking.findings.claims, finding.reason)}"
            for name, finding in found.items()
            if isinstance(finding, Failed)
        )
        return Unplaceable(undecided, tuple(sorted(failed)))

    def best(
        self,
        request: PlacementRequest,
        nodes: Collection[str] | None = None,
        *,
        budget: StepBudget | None = None,
        loss: NodeLoss | None = None,
    ) -> Iterator[PlacedClaims]:
        """All suitable nodes, the best first; each costs as much as a decision.

        The arguments are those of `place`. Other questions may be asked in between, also of a
        changed cluster; it must be as before when the next node is asked for.

        Raises:
            AllocationError, OutOfStepsError: as for `place`.
        """
        budget = self._unlimited if budget is None else budget
        ranking = self._ranking(request, budget, loss)
        return self._best(ranking, request, _as_set(nodes), None, budget)

    def reasons(
        self, request: PlacementRequest, nodes: Collection[str] | None = None
    ) -> tuple[NodeGroup, ...]:
        """Why nodes have no devices for the claims; nodes with the same reasons are together.

        It takes the time of an explanation for each node.
        """
        groups: dict[tuple[str, ...], list[str]] = {}
        first: dict[tuple[str, ...], Explanation] = {}
        for name in sorted(self._cluster.nodes if nodes is None else nodes):
            try:
                explanation = explain(request.claims, self._cluster.state(name))
            except AllocationError as error:
                explanation = Explanation(name, (), (str(error),))
            alike = explanation.anonymous()
            first.setdefault(alike, explanation)
            groups.setdefault(alike, []).append(name)
        return tuple(NodeGroup(first[alike], tuple(names)) for alike, names in groups.items())

    def _best(
        self,
        ranking: Ranking,
        request: PlacementRequest,
        nodes: Collection[str] | None,
        expired: Callable[[], bool] | None,
        budget: StepBudget,
    ) -> Iterator[PlacedClaims]:
        """The suitable nodes, the best first."""
        with _errors_about(request.claims, ranking.findings.claims):
            for name, finding in ranking.best(nodes, expired, budget):
                yield self._placed(request, name, finding.chosen)

    def _placed(self, request: PlacementRequest, name: str, chosen: Chosen) -> PlacedClaims:
        state = self._cluster.state(name)
        return PlacedClaims(name, write(request.claims, chosen, state, self._new_share_id))

    def _ranking(
        self, request: PlacementRequest, budget: StepBudget, loss: NodeLoss | None
    ) -> Ranking:
        """What is known of the nodes for requests of this kind.

        Raises:
            OutOfStepsError: the budget does not suffice to ask for them.
        """
        budget.spend(QUESTION)
        if self._wide_moment != self._cluster.wide_moment:
            self._wide_moment = self._cluster.wide_moment
            self._distances.clear()
            self._orders.clear()
            self._loss_orders.clear()
            self._rankings.clear()
        if self._taint_moment != self._cluster.taint_moment:
            self._taint_moment = self._cluster.taint_moment
            self._rankings.clear()  # the orders of nodes do not depend on taints
        if loss is not None and self._epoch != loss.epoch:
            self._epoch = loss.epoch
            for kind in [kind for kind in self._rankings if kind[1] is not None]:
                del self._rankings[kind]
        kind = request.key, None if loss is None else loss.key
        known = self._rankings.pop(kind, None)
        if known is None:
            known = self._new_ranking(request.claims, budget, loss)
            self._asked += 1
            if self._asked % _BETWEEN_LOOKS == 0:
                self._make_room()
        self._rankings[kind] = known  # the last to be forgotten
        if budget.is_limited:
            self._pay_for(kind, known, budget)
        return known

    def _pay_for(self, kind: _Kind, ranking: Ranking, budget: StepBudget) -> None:
        """Charges a kind of requests, once for all questions of a budget."""
        if self._payer is not budget:
            self._payer = budget
            self._paid_kinds.clear()
        if kind not in self._paid_kinds:
            self._paid_kinds.add(kind)
            nodes = len(self._cluster.nodes)
            of_order = nodes // KIND_PER_NODE if kind[1] is None else nodes // LOSSES
            budget.spend(ranking.steps + of_order)

    def _new_ranking(
        self, claims: tuple[Claim, ...], budget: StepBudget, loss: NodeLoss | None
    ) -> Ranking:
        demand = Demand(claims, self._cluster.features)
        work = demand.eligibility.work = Work(budget)
        # With policy upstream, an error on a node matters though it has too few devices.
        ordered = self._policy.devices is not None
        key = (
            _at_least(demand.required.devices) if ordered else 0,
            any(map(demand.concerns, self._cluster.wide_devices())),
        )
        order = self._orders.get(key) if loss is None else self._loss_orders.get((key, loss))
        if order is None:
            order = NodeOrder(self._cluster, self._distances_of(key), self._policy.nodes, loss)
            if loss is None:
                self._orders[key] = order
            else:
                self._loss_orders[key, loss] = order
        findings = Findings(claims, demand, self._cluster, self._policy, self._max_steps, loss)
        return Ranking(findings, self._cluster, order, work.steps)

    def _distances_of(self, key: _OrderKey) -> NodeDistances:
        """Those that all orders with this key use."""
        known = self._distances.get(key)
        if known is None:
            devices, wide = key
            close = self._policy.devices is not None
            known = self._distances[key] = NodeDistances(
                self._cluster, devices, close=close, wide=wide
            )
        return known

    def _make_room(self) -> None:
        weight = sum(self._weight(key, one) for key, one in self._rankings.items())
        while weight > _REMEMBERED and len(self._rankings) > 1:
            weight -= self._weight(*self._rankings.popitem(last=False))

    def _weight(self, kind: _Kind, ranking: Ranking) -> int:
        """The memory that is taken for a kind of requests, in findings."""
        key, loss = kind
        entries = len(self._cluster.nodes) // _HEAP_SHARE
        if loss is not None:
            entries += len(self._cluster.nodes)  # an order of nodes of its own
        return _KIND + len(key) // _CHARACTERS + entries + ranking.findings.size


def _count(mode: ExactCount | All) -> int:
    match mode:
        case ExactCount(count=count):
            return count
        case All():
            return 1
    assert_never(mode)


def _as_set(nodes: Collection[str] | None) -> Collection[str] | None:
    """The nodes so that it is known at once whether one is among them."""
    return nodes if nodes is None or isinstance(nodes, AbstractSet | Mapping) else frozenset(nodes)


@contextmanager
def _errors_about(claims: Iterable[Claim], first: Iterable[Claim]) -> Iterator[None]:
    """Errors name the claims that are asked for, in place of the first of their kind."""
    try:
        yield
    except AllocationError as error:
        raise type(error)(_about(claims, first, str(error))) from error


def _about(claims: Iterable[Claim], first: Iterable[Claim], error: str) -> str:
    """An error of the claims that were the first of their kind, as one of these claims."""
    for one, other in zip(claims, first, strict=True):
        before, name, after = error.partition(f"claim {other.source.key}")
        if name and after[:1] in (":", ",") and (not before or before.endswith(": ")):
            return f"{before}claim {one.source.key}{after}"
    return error


def _at_least(devices: int) -> int:
    """A number of devices of which an order of nodes is kept, not above this one."""
    if devices <= _EXACT:
        return devices
    return min(_MOST, 1 << devices.bit_length() - 1)
