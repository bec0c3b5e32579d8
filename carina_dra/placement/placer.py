"""Where in a cluster do these claims go best, and which devices do they get there?

Nodes of the same shape answer alike, so each shape is asked once for each kind of question, and
again only when a node takes a shape that was never seen.
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
"""So many kinds of questions are remembered."""


@dataclass(frozen=True, slots=True)
class Placed:
    """The claims go to this node, and get these devices."""

    node: str
    allocated: Allocated


@dataclass(frozen=True, slots=True)
class Nowhere:
    """No node has devices for the claims."""

    undecided: int
    """How many nodes might have, as far as the search went; 0 if the answer is certain."""
    invalid: tuple[str, ...]
    """Nodes of which a pool is invalid, with the reason."""


Placement: TypeAlias = Placed | Nowhere
_Verdict: TypeAlias = Score | Impossible | CutShort | NodeAllocationError
_Verdicts: TypeAlias = Iterator[tuple[_Verdict, Collection[str]]]


@dataclass(frozen=True, slots=True)
class Question:
    """Claims, ready to be asked about again and again."""

    claims: tuple[Claim, ...]
    key: str
    """The same for claims that ask for the same."""
    reads: frozenset[str] | None
    """The attributes that selectors read by value; None where that cannot be told."""

    @classmethod
    def of(
        cls,
        claims: Iterable[ResourceClaim],
        classes: Mapping[str, DeviceClass],
        features: Features,
    ) -> "Question":
        """Reads claims that are to go to one node together.

        Raises:
            AllocationError: they can be satisfied nowhere, whatever there is.
        """
        checked = tuple(check(claim, classes, features) for claim in claims)
        alternatives = [
            alternative
            for claim in checked
            for request in claim.requests
            for alternative in request.alternatives
        ]
        used = {each.device_class.metadata.name: each.device_class for each in alternatives}
        asked = [
            [encode(each.source.spec.devices) for each in checked],
            [encode(used[name].spec) for name in sorted(used)],
        ]
        return cls(checked, json.dumps(asked, sort_keys=True), attributes_read(checked))


class Placer:
    """Finds the best node of a cluster, and remembers what it has found out about shapes."""

    def __init__(
        self,
        cluster: Cluster,
        policy: Policy,
        *,
        new_share_id: Callable[[], str],
        max_steps: int | None = None,
    ) -> None:
        """`max_steps` bounds the search on a node; see `allocate`."""
        self._cluster = cluster
        self._policy = policy
        self._new_share_id = new_share_id
        self._max_steps = max_steps
        self._verdicts: dict[str, dict[int, _Verdict]] = {}
        self._version = cluster.shapes.version

    def place(self, question: Question, nodes: Collection[str] | None = None) -> Placement:
        """The best node, of these or of all, and the devices that the claims get there.

        Equally good nodes are taken in the order of their names. Nothing is changed: that is for
        `Cluster.allocate`.

        Raises:
            AllocationError: the claims can be satisfied nowhere.
        """
        if question.reads is None or not self._cluster.shapes.tell(question.reads):
            verdicts = self._one_by_one(question, nodes)
        else:
            verdicts = self._by_shape(question, nodes)
        ballot = _Ballot()
        for verdict, of_verdict in verdicts:
            ballot.count(verdict, of_verdict)
        if ballot.best is None:
            return Nowhere(ballot.undecided, tuple(sorted(ballot.invalid)))
        name = min(map(min, ballot.nodes))
        answer = self.answer(question, name)
        match answer:
            case Allocated():
                return Placed(name, answer)
            case Impossible() | CutShort():
                raise AssertionError(f"{name} has none of the devices that nodes of its shape have")

    def answer(self, question: Question, node: str) -> Answer:
        """What the claims get on one node.

        Raises:
            NodeAllocationError: a pool of the node is invalid.
            AllocationError: the claims can be satisfied nowhere.
        """
        return allocate(
            question.claims,
            self._cluster.state(node),
            new_share_id=self._new_share_id,
            policy=self._policy,
            max_steps=self._max_steps,
        )

    def _remembered(self, question: Question) -> dict[int, _Verdict]:
        if self._version != self._cluster.shapes.version:
            self._version = self._cluster.shapes.version
            self._verdicts.clear()
        verdicts = self._verdicts.pop(question.key, {})
        self._verdicts[question.key] = verdicts  # the last to be forgotten
        if len(self._verdicts) > _QUESTIONS:
            del self._verdicts[next(iter(self._verdicts))]
        return verdicts

    def _one_by_one(self, question: Question, nodes: Collection[str] | None) -> _Verdicts:
        for name in self._cluster.nodes if nodes is None else nodes:
            yield self._verdict(question, name), (name,)

    def _by_shape(self, question: Question, nodes: Collection[str] | None) -> _Verdicts:
        verdicts = self._remembered(question)
        for shape, of_shape in self._cluster.by_shape().items():
            members = of_shape if nodes is None else [name for name in of_shape if name in nodes]
            if members:
                if shape not in verdicts:
                    verdicts[shape] = self._verdict(question, next(iter(members)))
                yield verdicts[shape], members

    def _verdict(self, question: Question, node: str) -> _Verdict:
        try:
            answer = self.answer(question, node)
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
