"""Chooses the best node of a cluster for claims, and the claims' devices on it.

Nodes of the same shape give the same result. Each shape is evaluated once per kind of request, and
a node is evaluated again only when it takes a shape that was never seen.
"""

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.errors import NodeAllocationError
from carina_dra.allocator.features import Features
from carina_dra.allocator.preference import Policy, Score
from carina_dra.allocator.request import Claim, attributes_read, check
from carina_dra.allocator.search import CutShort, Impossible
from carina_dra.placement.cluster import Cluster
from carina_dra.resource import DeviceClass, ResourceClaim, encode

_QUESTIONS: Final = 256
"""The number of kinds of questions remembered."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The best node for the claims, and their devices on it."""

    node: str
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class Unplaceable:
    """No node has the devices that the claims ask for."""

    undecided: int
    """On how many nodes the search stopped at its step limit; 0 if the result is certain."""
    invalid: tuple[str, ...]
    """Nodes with an invalid pool, as `node: reason`."""


Placement: TypeAlias = Placed | Unplaceable
_Verdict: TypeAlias = Score | Impossible | CutShort | NodeAllocationError
_Verdicts: TypeAlias = Iterator[tuple[_Verdict, Collection[str]]]


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """Claims that must be allocated on one node together."""

    claims: tuple[Claim, ...]
    key: str
    """Equal for requests whose claims and classes have equal specs."""
    reads: frozenset[str] | None
    """The attributes that selectors read by value; None if unknown."""

    @classmethod
    def of(
        cls,
        claims: Iterable[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        features: Features,
    ) -> "PlacementRequest":
        """Checks the claims; `classes` has the device classes by name.

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
        asked = [
            [encode(claim.source.spec.devices) for claim in checked],
            [encode(used[name].spec) for name in sorted(used)],
        ]
        return cls(checked, json.dumps(asked, sort_keys=True), attributes_read(checked))


class Placer:
    """Finds the best node of a cluster, and caches the results by shape."""

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
        self._verdicts: dict[str, dict[int, _Verdict]] = {}
        self._version = cluster.shapes.version

    def place(self, request: PlacementRequest, nodes: Collection[str] | None = None) -> Placement:
        """The best of these nodes, or of all, and the devices that the claims get there.

        Of equally good nodes, the first by name is chosen. The cluster does not change;
        `Cluster.allocate` records the allocation.

        Raises:
            AllocationError: no node can satisfy the claims.
        """
        if request.reads is None or not self._cluster.shapes.tell(request.reads):
            verdicts = self._one_by_one(request, nodes)
        else:
            verdicts = self._by_shape(request, nodes)
        ballot = _Ballot()
        for verdict, of_verdict in verdicts:
            ballot.count(verdict, of_verdict)
        if ballot.best is None:
            return Unplaceable(ballot.undecided, tuple(sorted(ballot.invalid)))
        name = min(map(min, ballot.nodes))
        answer = self.answer(request, name)
        match answer:
            case Allocated():
                return Placed(name, answer)
            case Impossible() | CutShort():
                raise AssertionError(f"{name} has none of the devices that nodes of its shape have")

    def answer(self, request: PlacementRequest, node: str) -> Answer:
        """The claims' devices on one node.

        Raises:
            NodeAllocationError: the node has no devices for the claims, and an invalid pool.
            AllocationError: no node can satisfy the claims.
        """
        return allocate(
            request.claims,
            self._cluster.state(node),
            new_share_id=self._new_share_id,
            policy=self._policy,
            max_steps=self._max_steps,
        )

    def _remembered(self, request: PlacementRequest) -> dict[int, _Verdict]:
        if self._version != self._cluster.shapes.version:
            self._version = self._cluster.shapes.version
            self._verdicts.clear()
        verdicts = self._verdicts.pop(request.key, {})
        self._verdicts[request.key] = verdicts  # the last to be forgotten
        if len(self._verdicts) > _QUESTIONS:
            del self._verdicts[next(iter(self._verdicts))]
        return verdicts

    def _one_by_one(self, request: PlacementRequest, nodes: Collection[str] | None) -> _Verdicts:
        for name in self._cluster.nodes if nodes is None else nodes:
            yield self._verdict(request, name), (name,)

    def _by_shape(self, request: PlacementRequest, nodes: Collection[str] | None) -> _Verdicts:
        verdicts = self._remembered(request)
        for shape, of_shape in self._cluster.by_shape().items():
            members = of_shape if nodes is None else [name for name in of_shape if name in nodes]
            if members:
                if shape not in verdicts:
                    verdicts[shape] = self._verdict(request, next(iter(members)))
                yield verdicts[shape], members

    def _verdict(self, request: PlacementRequest, node: str) -> _Verdict:
        try:
            answer = self.answer(request, node)
        except NodeAllocationError as error:
            return error
        return answer.score if isinstance(answer, Allocated) else answer


@dataclass(slots=True)
class _Ballot:
    """The best so far, and what became of the others."""

    best: Score | None = None
    nodes: list[Collection[str]] = field(default_factory=list)
    """Those with the best score."""
    undecided: int = 0
    invalid: list[str] = field(default_factory=list)

    def count(self, verdict: _Verdict, nodes: Collection[str]) -> None:
        match verdict:
            case Score():
                if self.best is None or verdict < self.best:
                    self.best, self.nodes = verdict, []
                if verdict == self.best:
                    self.nodes.append(nodes)
            case Impossible():
                pass
            case CutShort():
                self.undecided += len(nodes)
            case NodeAllocationError():
                self.invalid += [f"{name}: {verdict}" for name in nodes]
