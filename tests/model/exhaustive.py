"""The best allocation, found by trying all."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product

from tests.model.pools import Key, PoolState
from tests.model.problem import ModelAlternative, ModelChoice, Problem, published_attribute
from tests.model.rules import all_match, conflict
from tests.samples.random_pools import NUMA_NODE, NVLINK_DOMAIN, PCIE_ROOT

_LEVELS = (
    (NVLINK_DOMAIN, PCIE_ROOT),
    (NVLINK_DOMAIN, NUMA_NODE),
    (NVLINK_DOMAIN,),
    (PCIE_ROOT,),
    (NUMA_NODE,),
)
_FAR = len(_LEVELS)


@dataclass(frozen=True)
class Best:
    """The best allocation."""

    choices: tuple[ModelChoice, ...]
    ranks: tuple[int, ...]
    """The chosen alternative of each request with firstAvailable, in the order of the requests."""
    distance: int


def best(problem: Problem, order: Sequence[Key]) -> Best | None:
    """The best allocation if devices are preferred in this order; None if there is none.

    Earlier alternatives count more than closeness, and closeness more than the order of devices.
    """
    for alternatives in product(*(request for claim in problem.requests for request in claim)):
        for distance, is_close in _closeness(problem):
            choices = next(_allocations(problem, alternatives, order, is_close), None)
            if choices is not None:
                return Best(choices, ranks(choices), distance)
    return None


def ranks(choices: Sequence[ModelChoice]) -> tuple[int, ...]:
    """The chosen alternative of each request with firstAvailable, in the order of the requests."""
    chosen = {(choice.claim, choice.request): choice.alternative.rank for choice in choices}
    return tuple(rank for _, rank in sorted(chosen.items()) if rank is not None)


def asks_for_one_device(problem: Problem) -> bool:
    """Whether the claims ask for a single device, whichever alternative is chosen."""
    requests = [request for claim in problem.requests for request in claim]
    return len(requests) == 1 and all(
        not alternative.takes_all and alternative.count == 1 for alternative in requests[0]
    )


_IsClose = Callable[[Sequence[ModelChoice]], bool]


def _closeness(problem: Problem) -> Iterator[tuple[int, _IsClose]]:
    """The levels of closeness, the best first."""
    if asks_for_one_device(problem):
        yield 0, lambda choices: True
        return
    known = {
        name
        for name in (NVLINK_DOMAIN, PCIE_ROOT, NUMA_NODE)
        for device in problem.devices.values()
        if published_attribute(device, name) is not None
    }
    for distance, names in enumerate(_LEVELS):
        present = [name for name in names if name in known]
        if present:
            yield distance, partial(_share, problem, present)
    yield _FAR, lambda choices: True


def _share(problem: Problem, names: Sequence[str], choices: Sequence[ModelChoice]) -> bool:
    """Whether the devices share these attributes; one that lacks an attribute matches."""
    lists = "DRAListTypeAttributes" in problem.gates
    for name in names:
        values = [published_attribute(choice.device, name) for choice in choices]
        if not all_match([value for value in values if value is not None], lists=lists):
            return False
    return True


def _allocations(
    problem: Problem,
    alternatives: Sequence[ModelAlternative],
    order: Sequence[Key],
    is_close: _IsClose,
) -> Iterator[tuple[ModelChoice, ...]]:
    """All allocations with these alternatives, those with preferred devices first."""
    places = [
        (claim, request)
        for claim, requests in enumerate(problem.requests)
        for request in range(len(requests))
    ]
    wanted: list[tuple[int, int, ModelAlternative, int]] = []
    candidates: dict[ModelAlternative, list[Key]] = {}
    for (claim, request), alternative in zip(places, alternatives, strict=True):
        keys = [key for key in order if key in problem.devices]
        count = alternative.count
        if alternative.takes_all:
            every = {device.key for device in problem.every(alternative)}
            keys, count = [key for key in keys if key in every], len(every)
            if not every or any(pool.state is not PoolState.READY for pool in problem.pools):
                return
        candidates[alternative] = keys
        wanted += [(claim, request, alternative, index) for index in range(count)]
    yield from _extended(problem, wanted, candidates, is_close, [], 0)


def _extended(
    problem: Problem,
    wanted: Sequence[tuple[int, int, ModelAlternative, int]],
    candidates: dict[ModelAlternative, list[Key]],
    is_close: _IsClose,
    choices: list[ModelChoice],
    start: int,
) -> Iterator[tuple[ModelChoice, ...]]:
    if len(choices) == len(wanted):
        yield tuple(choices)
        return
    claim, request, alternative, index = wanted[len(choices)]
    keys = candidates[alternative]
    # The devices of a request are a combination: each comes after the one before.
    for position in range(start if index else 0, len(keys)):
        choice = ModelChoice(claim, request, alternative, problem.devices[keys[position]])
        extended = [*choices, choice]
        if conflict(problem, extended) is None and is_close(extended):
            yield from _extended(problem, wanted, candidates, is_close, extended, position + 1)
