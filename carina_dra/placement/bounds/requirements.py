"""What claims require of a node at least, as far as it follows from the claims alone."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from carina_dra.allocator.allocate import asks_for_several
from carina_dra.allocator.request import Alternative, Claim, Constraint, NamedSelector
from carina_dra.allocator.usage import DeviceAmounts
from carina_dra.cel import CompileError
from carina_dra.placement.bounds.packing import Want
from carina_dra.resource import All, DistinctAttribute, ExactCount, MatchAttribute
from carina_dra.resource.limits import DEVICES_PER_CLAIM

_FEW: Final = 16
"""With more conditions of selectors, a node is not refused before they are evaluated."""
_FEW_ATTRIBUTES: Final = 8
"""With more attributes in common, those after them are looked at with the other conditions."""


@dataclass(frozen=True, slots=True, eq=False)
class WantedAlternative:
    """An alternative, and how many devices it needs at least."""

    source: Alternative
    count: int
    together: DeviceAmounts
    """What it asks for of the capacities of all its devices, in billionths."""

    @classmethod
    def of(cls, source: Alternative) -> "WantedAlternative":
        """An alternative of a request."""
        count, asked = _least(source), source.capacity.requests if source.capacity else {}
        together = {name: count * max(0, amount.nanos) for name, amount in asked.items()}
        return cls(source, count, together)

    def want(self, devices: int) -> Want:
        """That it wants its number of these devices."""
        return Want(devices, self.count, not self.source.admin_access)


@dataclass(frozen=True, slots=True)
class Matched:
    """Attributes whose values some requests must have in common."""

    attributes: tuple[str, ...]
    requests: tuple[tuple[int, frozenset[int]], ...]
    """By index; with the indices of its alternatives that are meant."""


@dataclass(frozen=True, slots=True)
class Count:
    """How many free devices it takes at least, each of them for one request."""

    alone: int
    """If each device can be given to one request only."""
    shared: int
    """If several requests can share a device: a request gets it once."""


@dataclass(frozen=True, slots=True)
class Differing:
    """An attribute in which the devices of some requests must differ."""

    attribute: str
    requests: tuple[int, ...]
    """By index; all alternatives are meant."""


class Requirements:
    """What all requests of claims require."""

    def __init__(self, claims: Sequence[Claim]) -> None:
        self.requests: list[tuple[WantedAlternative, ...]] = []
        self.matches: list[Matched] = []
        self.distinct: list[Differing] = []
        for claim in claims:
            first = len(self.requests)
            for request in claim.requests:
                self.requests.append(tuple(map(WantedAlternative.of, request.alternatives)))
            self.matches += _matches(claim, first)
            self.distinct += _distinct(claim, first)
        self.every = Matched((), tuple((index, frozenset()) for index in range(len(self.requests))))
        """All requests together."""
        exclusive = not any(
            alternative.source.admin_access for request in self.requests for alternative in request
        )
        self.devices = (
            sum(min(alternative.count for alternative in request) for request in self.requests)
            if exclusive
            else 0
        )
        """How many devices it takes at least that nobody else has; a share of one counts as one."""
        self.compiles = not any(
            isinstance(named.selector, CompileError)
            for request in self.requests
            for alternative in request
            for named in alternative.source.selectors
        )
        """Whether all selectors do."""
        self.count = self._count(range(len(self.requests)))
        """Of all devices."""
        self.matched = self._matched()
        """Of the devices that have values in common, by these attributes."""
        self.together = self._least_together()
        """How many devices have a value of each of these attributes in common, at least.

        Without it, `unlike`, 2 GPUs of a PCIe root, takes 15 times as long.
        """
        alternatives = [alternative.source for request in self.requests for alternative in request]
        self.is_deciding = (
            len(alternatives) > 0
            and all(any(map(_is_deciding, alternative.selectors)) for alternative in alternatives)
            and sum(
                _conditions(named)
                for alternative in alternatives
                for named in alternative.selectors
            )
            <= _FEW
        )
        """Whether each alternative requires what a device may lack without an evaluation.

        With more conditions than a few, a node would not be refused at a glance.
        """
        self.may_be_out_of_reach = self.compiles and bool(self.together or self.is_deciding)
        """Whether a node can be out of reach of the claims."""
        sharing = [
            request
            for request in self.requests
            if not any(alternative.source.admin_access for alternative in request)
        ]
        self.sharing = sharing
        """The requests that a device could serve if it were shared: each gets it once."""
        self.several = asks_for_several(claims)
        self.fails_alone = any(map(_may_fail, claims))
        """Whether a claim could fail whatever the devices are."""
        self.has_all = any(
            isinstance(alternative.source.mode, All)
            for request in self.requests
            for alternative in request
        )

    @property
    def amounts(self) -> Mapping[str, int]:
        """The amount of each capacity that some device must have left, in billionths.

        Without it, `shares`, 1 share larger than any GPU, takes 4 times as long.
        """
        amounts: dict[str, int] = {}
        for alternatives in self.requests:
            wanted = alternatives[0].source
            if len(alternatives) == 1 and not wanted.admin_access and wanted.capacity is not None:
                for name, amount in wanted.capacity.requests.items():
                    amounts[name] = max(amount.nanos, amounts.get(name, 0))
        return amounts

    @property
    def amounts_together(self) -> tuple[tuple[str, Mapping[str, int]], ...]:
        """The amounts that devices with a value of an attribute in common must have left together.

        In billionths, with the attribute. Without it, `shares`, 2 shares of a GPU which has room
        for one, takes 30 times as long.
        """
        together = []
        for match in self.matches:
            amounts: dict[str, int] = {}
            for index, meant in match.requests:
                request = self.requests[index]
                if len(request) == len(meant) and not any(
                    alternative.source.admin_access for alternative in request
                ):
                    for name, amount in least_of(
                        [alternative.together for alternative in request]
                    ).items():
                        amounts[name] = amounts.get(name, 0) + amount
            if amounts:
                together += [(attribute, amounts) for attribute in match.attributes]
        return tuple(together[:_FEW_ATTRIBUTES])

    @property
    def attributes(self) -> frozenset[tuple[str, str]]:
        """The values of attributes that devices of a node must have, each of them some device."""
        return frozenset(
            condition
            for of in self.requests
            if len(of) == 1
            for named in of[0].source.selectors
            if not isinstance(named.selector, CompileError)
            for condition in named.selector.equalities
        )

    def _least_together(self) -> Mapping[str, int]:
        together: dict[str, int] = {}
        for names, count in self.matched.items():
            for name in names:
                together[name] = max(count.alone, together.get(name, 0))
        # A device alone matches also if its values cannot be compared.
        several = [(name, count) for name, count in together.items() if count > 1]
        return dict(several[:_FEW_ATTRIBUTES])

    @cached_property
    def always_in_common(self) -> Sequence[str]:
        """The attributes that all devices have in common, whichever the alternatives."""
        return [
            name
            for match in self.matches
            if len(self._always(match)) == len(self.requests)
            for name in match.attributes
        ]

    def _always(self, match: Matched) -> Sequence[int]:
        """The requests whose devices match, whichever the alternatives."""
        return [index for index, meant in match.requests if len(meant) == len(self.requests[index])]

    def _matched(self) -> Mapping[tuple[str, ...], Count]:
        matched: dict[tuple[str, ...], Count] = {}
        for match in self.matches:
            count = self._count(self._always(match))
            other = matched.get(match.attributes, count)
            matched[match.attributes] = Count(
                max(count.alone, other.alone), max(count.shared, other.shared)
            )
        return matched

    def least(self, request: int) -> int:
        """How many devices a request takes at least, whichever the alternative."""
        return min(one.count for one in self.requests[request])

    def _count(self, requests: Iterable[int]) -> Count:
        """How many devices requests take. Admin access takes none."""
        counts = [
            min(0 if one.source.admin_access else one.count for one in self.requests[index])
            for index in requests
        ]
        return Count(sum(counts), max(counts, default=0))

    def in_common(self, first: Sequence[int]) -> Sequence[str]:
        """The attributes that all devices of these alternatives must have in common."""
        chosen = set(enumerate(first))
        return [
            name
            for match in self.matches
            if chosen <= {(request, rank) for request, meant in match.requests for rank in meant}
            for name in match.attributes
        ]


def _is_deciding(named: NamedSelector) -> bool:
    """Whether it may be known without an evaluation that the selector is false."""
    selector = named.selector
    return not isinstance(selector, CompileError) and bool(selector.deciding or selector.minimums)


def _conditions(named: NamedSelector) -> int:
    """How many conditions of a selector are looked at without an evaluation."""
    if isinstance(named.selector, CompileError):
        return 0
    return len(named.selector.deciding) + len(named.selector.minimums)


def _least(wanted: Alternative) -> int:
    """All devices are one at least: if none matches, the request cannot be satisfied."""
    match wanted.mode:
        case ExactCount(count=count):
            return count
        case All():
            return 1


def _may_fail(claim: Claim) -> bool:
    """Whether it may ask for too many devices, or derives attributes."""
    least = sum(min(map(_least, request.alternatives)) for request in claim.requests)
    return least > DEVICES_PER_CLAIM or any(
        one.derived for request in claim.requests for one in request.alternatives
    )


def least_of(alternatives: Sequence[DeviceAmounts]) -> DeviceAmounts:
    """The least amounts of alternatives; of a capacity that one does not ask for it is nothing."""
    first, *others = alternatives
    return {
        name: least
        for name, amount in first.items()
        if (least := min([amount, *(other.get(name, 0) for other in others)]))
    }


def _matches(claim: Claim, first: int) -> Iterator[Matched]:
    """The claim's matchAttribute constraints on published attributes, by the requests they mean."""
    attributes: dict[tuple[tuple[int, frozenset[int]], ...], list[str]] = {}
    for constraint in claim.constraints:
        rule = constraint.rule
        if not isinstance(rule, MatchAttribute):
            continue
        requests = tuple(_meant(claim, constraint, first))
        if requests and not _is_derived(rule.name, claim):
            attributes.setdefault(requests, []).append(rule.name)
    for of_requests, names in attributes.items():
        yield Matched(tuple(names), of_requests)


def _distinct(claim: Claim, first: int) -> Iterator[Differing]:
    """The claim's distinctAttribute constraints on published attributes."""
    for constraint in claim.constraints:
        rule = constraint.rule
        if isinstance(rule, DistinctAttribute) and not _is_derived(rule.name, claim):
            requests = tuple(
                index
                for index, meant in _meant(claim, constraint, first)
                if len(meant) == len(claim.requests[index - first].alternatives)
            )
            yield Differing(rule.name, requests)


def _meant(
    claim: Claim, constraint: Constraint, first: int
) -> Iterator[tuple[int, frozenset[int]]]:
    """The requests that a constraint means, by index, with their alternatives that it means."""
    for index, request in enumerate(claim.requests, first):
        meant = frozenset(
            rank
            for rank, alternative in enumerate(request.alternatives)
            if alternative.is_meant_by(constraint.requests)
        )
        if meant:
            yield index, meant


def _is_derived(attribute: str, claim: Claim) -> bool:
    return any(
        attribute in one.derived for request in claim.requests for one in request.alternatives
    )
