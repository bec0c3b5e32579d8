"""What is found on the nodes of a cluster for claims of one kind, remembered until they change.

A node is looked at in steps. A count of the free devices that may match says how close they could
be; if that is worse than thought, other nodes come first. Then the conditions of the demand are
checked, which bounds the score that the node could have, and at last the devices are chosen.
"""

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeAlias, TypeVar, assert_never

from carina_dra.allocator.allocate import Chosen, choose
from carina_dra.allocator.errors import AllocationError, ExpressionError, NodeAllocationError
from carina_dra.allocator.pool import Candidate, InvalidPool
from carina_dra.allocator.preference import BROKEN, FAR, Order, Policy, breakable, broken
from carina_dra.allocator.request import Alternative, Claim
from carina_dra.allocator.result import node_selector
from carina_dra.allocator.search import CutShort, Impossible
from carina_dra.allocator.usage import PoolId
from carina_dra.cel import AttributeExpression
from carina_dra.placement.bounds.demand import Bound, Demand, Short
from carina_dra.placement.bounds.eligibility import EligibleDevices
from carina_dra.placement.choice.dues import Dues
from carina_dra.placement.choice.order import Entry, NodeLoss
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.offer import PoolState
from carina_dra.price import NODE
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceAttribute
from carina_dra.step_budget import OutOfStepsError, StepBudget
from carina_dra.work import Work

T = TypeVar("T")


class ExpiredError(Exception):
    """Time was up before the best node was found."""


@dataclass(frozen=True, slots=True)
class NodeRefused:
    """The node does not have the devices."""


@dataclass(frozen=True, slots=True)
class NodeUndecided:
    """The search on the node stopped at its limit of steps."""


@dataclass(frozen=True, slots=True)
class Failed:
    """The node has no devices for the claims, and something of it is wrong."""

    reason: str


@dataclass(frozen=True, slots=True)
class Fatal:
    """The attempt fails on all nodes: the policy is upstream's, or the error is the claim's."""

    entry: Entry
    error: AllocationError


@dataclass(frozen=True, slots=True)
class Suitable:
    """The node has devices for the claims."""

    entry: Entry
    chosen: Chosen


@dataclass(frozen=True, slots=True)
class Estimated:
    """The devices are farther from each other than the order of nodes had it."""

    entry: Entry


@dataclass(frozen=True, slots=True)
class Bounded:
    """The conditions of the demand are met; the devices have not been chosen yet."""

    entry: Entry
    bound: Bound


Finding: TypeAlias = NodeRefused | NodeUndecided | Failed | Fatal | Suitable


class Findings:
    """What is known of each node for claims of one kind."""

    def __init__(
        self,
        claims: tuple[Claim, ...],
        demand: Demand,
        cluster: Cluster,
        policy: Policy,
        max_steps: int | None,
        loss: NodeLoss | None = None,
    ) -> None:
        """`loss` is what the use of nodes costs, if it is not what the policy says."""
        self.demand = demand
        self._loss = loss
        self.is_upstream = policy.devices is None
        """Whether errors are those of upstream, and close devices are not wanted."""
        self.claims = claims
        """The first of the kind that were asked for; errors name them."""
        self._cluster = cluster
        self._policy = policy
        self._max_steps = max_steps
        self._takes_devices = any(
            not any(alternative.admin_access for alternative in request.alternatives)
            for claim in claims
            for request in claim.requests
        )
        """Whether a request takes devices, whichever of its alternatives it gets."""
        self._known: dict[str, Finding | Estimated | Bounded] = {}
        self.dues = Dues()
        """What it has cost to find this out."""

    @property
    def size(self) -> int:
        """The number of nodes of which something is known."""
        return len(self._known)

    def get(self, node: str) -> Finding | Estimated | Bounded | None:
        """What is known of a node."""
        return self._known.get(node)

    def of(self, nodes: Collection[str] | None) -> Iterator[tuple[str, Finding]]:
        """What was found on those of the nodes that have been looked at; None for all nodes."""
        for name, known in self._known.items():
            if not isinstance(known, Estimated | Bounded) and (nodes is None or name in nodes):
                yield name, known

    def look(self, entry: Entry, expired: Callable[[], bool] | None, budget: StepBudget) -> None:
        """Finds out more of a node: first whether it meets the conditions, then its devices.

        What is not finished is not remembered.

        Raises:
            ExpiredError: time is up.
            OutOfStepsError: the budget does not suffice.
        """
        if expired is not None and expired():
            raise ExpiredError
        name = entry[3]
        known = self._known.get(name)
        after: Finding | Estimated | Bounded
        if isinstance(known, Bounded):
            find = partial(self._choose, known, expired)
            after = self._attempt(entry, find, budget)
        else:
            check = partial(self._check, entry, is_new=known is None)
            after = self._attempt(entry, check, budget)
        self._known[name] = after

    def refuse(self, node: str) -> None:
        """Records that a node does not have the devices."""
        self._known[node] = NodeRefused()

    def forget(self, nodes: Iterable[str]) -> None:
        """Forgets what is known of nodes, and what it has cost."""
        for name in nodes:
            self._known.pop(name, None)
            self.dues.forget(name)

    def forget_all(self) -> None:
        """Forgets what is known of all nodes."""
        self._known.clear()
        self.dues.forget_all()

    def entry(self, node: str, first: Callable[[str], Entry | None]) -> Entry | None:
        """The best score that a node could have, with its name; None if it is not suitable.

        `first` has that of a node of which nothing is known.
        """
        known = self._known.get(node)
        match known:
            case None:
                return first(node)
            case Estimated(entry=entry) | Bounded(entry=entry):
                return entry
            case Suitable(entry=entry) | Fatal(entry=entry):
                return entry
            case NodeRefused() | NodeUndecided() | Failed():
                return None
        assert_never(known)

    def _attempt(
        self, entry: Entry, find: Callable[[], T], budget: StepBudget
    ) -> T | Failed | Fatal:
        """What is found on a node, or what failed there; what it costs is due for the node.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        work = self.demand.eligibility.work = Work(budget)
        try:
            work.spend(NODE)
            found = self._without_errors(entry, find)
        except OutOfStepsError:
            budget.spend(budget.left + 1)
            raise
        budget.spend(work.steps)
        self.dues.add(entry, work.steps, budget)
        return found

    def _without_errors(self, entry: Entry, find: Callable[[], T]) -> T | Failed | Fatal:
        try:
            return find()
        except NodeAllocationError as error:
            return Failed(str(error))
        except ExpressionError as error:
            return Fatal(entry, error)
        except AllocationError as error:
            return Fatal(entry, error) if self.is_upstream else Failed(str(error))

    def _check(self, entry: Entry, *, is_new: bool) -> NodeRefused | Failed | Estimated | Bounded:
        name = entry[3]
        offer = self._cluster.offer(name)
        states = self._states(name)
        if is_new and not self.is_upstream:
            distance = self.demand.least_distance(offer, states)
            if distance > entry[1]:
                return Estimated((entry[0], distance, *entry[2:]))
        if self.is_upstream and self.demand.required.has_all:
            bound: Bound | Short = Bound(0, 0)  # all devices that a constraint forbids are an error
        else:
            is_whole = len(offer.ready) == len(offer.pools)
            bound = self.demand.bound(offer, states, is_whole=is_whole, wish=not self.is_upstream)
        if isinstance(bound, Short):
            is_invalid = any(isinstance(pool, InvalidPool) for pool in offer.pools)
            if not is_invalid and not self._may_be_fatal(bound, states):
                return Failed(bound.error) if bound.error else NodeRefused()
            bound = Bound(0, 0)  # whether and which error matters, only the search can tell
        use = entry[2]
        if self._must_break(bound, states):
            use = use + BROKEN if self._loss is None else max(use, self._loss.on_breaking(name))
        return Bounded((bound.alternatives, bound.distance, use, name), bound)

    def _must_break(self, bound: Bound, states: Sequence[PoolState]) -> bool:
        """Whether any allocation breaks a free GPU, and it matters."""
        matters = self._loss is not None or self._policy.nodes is Order.FRAGMENTATION
        if not (matters and self._takes_devices):
            return False
        left = bound.among
        if left is None:
            return False
        for state in states:
            if left & ((1 << len(state.offered.devices)) - 1) & ~breakable(state.uses):
                return False
            left >>= len(state.offered.devices)
        return True

    def _may_be_fatal(self, short: Short, states: Sequence[PoolState]) -> bool:
        """Whether an error on the node may be one of the whole attempt."""
        if self.is_upstream:
            return bool(short.error) or self.demand.may_fail(states)
        return bool(short.error) and not self.demand.required.compiles

    def _choose(
        self, bounded: Bounded, expired: Callable[[], bool] | None
    ) -> Suitable | NodeRefused | NodeUndecided:
        bound, (*_, least, name) = bounded.bound, bounded.entry
        states = self._states(name)
        verdict = choose(
            self.claims,
            self._cluster.state(name),
            policy=self._policy,
            max_steps=self._max_steps,
            expired=expired,
            uses=[state.uses for state in states],
            # That the first alternatives are impossible says that they are at no distance.
            least_distance=FAR if bound.alternatives else bound.distance,
            among=bound.among,
            known=_KnownOfNode(self.demand.eligibility, states),
            work=self.demand.work,
        )
        if expired is not None and expired():
            raise ExpiredError  # a search that was ended may have missed better devices
        match verdict:
            case Chosen(score=score, choices=choices):
                for of_claim in choices:
                    node_selector(of_claim, self._cluster.nodes[name])  # an error of the node
                use = score.use
                if self._loss is not None:
                    breaks = broken(choices, [state.uses for state in states])
                    use = max(least, self._loss.on_breaking(name)) if breaks else least
                return Suitable((score.alternatives, score.distance, use, name), verdict)
            case Impossible():
                return NodeRefused()
            case CutShort():
                return NodeUndecided()
        assert_never(verdict)

    def _states(self, name: str) -> list[PoolState]:
        ready = self._cluster.offer(name).ready
        return [self._cluster.pool_state(one) for one in ready]


class _KnownOfNode:
    """What was found when the conditions were checked, for the search."""

    def __init__(self, eligibility: EligibleDevices, states: Iterable[PoolState]) -> None:
        self._eligibility = eligibility
        self._offered = {state.offered.pool.id: state.offered for state in states}

    def selects(self, alternative: Alternative, candidate: Candidate) -> bool | None:
        offered = self._offered[PoolId(candidate.id.driver, candidate.id.pool)]
        return self._eligibility.selects(alternative, candidate, offered)

    def amounts(
        self, alternative: Alternative, candidate: Candidate
    ) -> Mapping[str, Quantity] | None:
        return self._eligibility.amounts_of(alternative, candidate)

    def derived(
        self, expression: AttributeExpression, candidate: Candidate
    ) -> DeviceAttribute | None:
        return self._eligibility.derived(expression, candidate)
