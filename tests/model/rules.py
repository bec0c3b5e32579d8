"""Whether devices can be given to requests together."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

from tests.model.capacity import nanos
from tests.model.pools import ModelDevice, ModelPool, Object, PoolState
from tests.model.problem import ModelAlternative, ModelChoice, Problem

_DEVICES_PER_CLAIM = 32


def conflict(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    """Why these choices are not possible together; None if they are.

    If some choices are possible together, then so is a part of them.
    """
    for choice in choices:
        refusal = problem.refusal(choice.alternative, choice.device)
        if refusal:
            return f"{choice.alternative.name} has {choice.device.key}: {refusal}"
    return (
        _held_twice(problem, choices)
        or _overdrawn_capacity(problem, choices)
        or _overdrawn_counters(problem, choices)
        or _incompatible_groups(problem, choices)
        or _violated_constraint(problem, choices)
        or _too_many(choices)
    )


def incompleteness(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    """Which request does not have what it asks for; None if each has."""
    for claim, requests in enumerate(problem.requests):
        for request in range(len(requests)):
            of_request = [
                choice for choice in choices if (choice.claim, choice.request) == (claim, request)
            ]
            alternatives = {choice.alternative for choice in of_request}
            if len(alternatives) != 1:
                names = sorted(alternative.name for alternative in alternatives)
                return f"claim {claim}, request {request} has devices for {names}"
            missing = _missing(problem, alternatives.pop(), of_request)
            if missing:
                return missing
    return None


def _missing(
    problem: Problem, alternative: ModelAlternative, choices: Sequence[ModelChoice]
) -> str | None:
    if not alternative.takes_all:
        if len(choices) == alternative.count:
            return None
        return f"{alternative.name} has {len(choices)} of {alternative.count} devices"
    if any(pool.state is not PoolState.READY for pool in problem.pools):
        return f"{alternative.name} asks for all devices, and a pool is not ready"
    wanted = {device.key for device in problem.every(alternative)}
    if {choice.device.key for choice in choices} != wanted:
        return f"{alternative.name} does not have all of {sorted(wanted)}"
    return None


def _held_twice(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    in_request = Counter((choice.claim, choice.request, choice.device.key) for choice in choices)
    whole = [choice for choice in choices if not problem.is_shareable(choice.device)]
    in_claim = Counter((choice.claim, choice.device.key) for choice in whole)
    dedicated = Counter(choice.device.key for choice in whole if not choice.alternative.is_admin)
    for held in (in_request, in_claim, dedicated):
        for key, count in held.items():
            if count > 1:
                return f"{key} is given out {count} times"
    return None


def _overdrawn_capacity(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    if "DRAConsumableCapacity" not in problem.gates:
        return None
    taken: dict[ModelDevice, Counter[str]] = {}
    for choice in choices:
        amounts = problem.amounts(choice.alternative, choice.device)
        if amounts and not choice.alternative.is_admin:
            taken.setdefault(choice.device, Counter()).update(amounts)
    for device, amounts in taken.items():
        before = problem.shared.get(device.key, {})
        for name, amount in amounts.items():
            if before.get(name, 0) + amount > nanos(device.body["capacity"][name]["value"]):
                return f"{device.key} has too little {name}"
    return None


def _drawing(
    problem: Problem, pool: ModelPool, choices: Sequence[ModelChoice]
) -> list[ModelDevice]:
    """The devices of the pool whose counters the choices consume; shares consume them once."""
    devices = {
        choice.device.key: choice.device
        for choice in choices
        if not choice.alternative.is_admin
        and choice.device.key[:2] == (pool.driver, pool.name)
        and not (problem.is_shareable(choice.device) and choice.device.key in problem.shared)
    }
    return [device for device in devices.values() if device.body.get("consumesCounters")]


def _overdrawn_counters(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    for pool in problem.pools:
        drawing = _drawing(problem, pool, choices)
        if not drawing:
            continue
        left = Counter(
            {
                (counter_set["name"], name): nanos(counter["value"])
                for counter_set in pool.counter_sets
                for name, counter in counter_set["counters"].items()
            }
        )
        left.subtract(_consumption([*_in_use(problem, pool), *drawing]))
        for counter, amount in left.items():
            if amount < 0:
                return f"{pool.driver}/{pool.name} has too little of {counter}"
    return None


def _consumption(devices: Iterable[ModelDevice]) -> Counter[tuple[str, str]]:
    total: Counter[tuple[str, str]] = Counter()
    for device in devices:
        for consumption in device.body.get("consumesCounters") or ():
            for name, counter in consumption["counters"].items():
                total[consumption["counterSet"], name] += nanos(counter["value"])
    return total


def _in_use(problem: Problem, pool: ModelPool) -> list[ModelDevice]:
    return [
        device
        for device in (*pool.devices, *pool.elsewhere)
        if device.key in problem.dedicated or device.key in problem.shared
    ]


def _incompatible_groups(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    """Devices of a counter set share a group, or none of them has any (KEP-5941)."""
    if "DRADeviceCompatibilityGroups" not in problem.gates:
        return None
    for pool in problem.pools:
        drawing = _drawing(problem, pool, choices)
        for counter_set in {name for device in drawing for name, _ in _groups(device)}:
            before = _groups_of(counter_set, _in_use(problem, pool))
            new = _groups_of(counter_set, drawing)
            # What is in use may contradict itself; those without groups count only if they are
            # first, as upstream has it.
            known = before[:1] if before and not before[0] else [each for each in before if each]
            together = [*known, *new]
            if any(together) and not frozenset.intersection(*together):
                return f"{pool.driver}/{pool.name}: no compatibility group for all in {counter_set}"
    return None


def _groups(device: ModelDevice) -> list[tuple[str, frozenset[str]]]:
    return [
        (consumption["counterSet"], frozenset(consumption.get("compatibilityGroups") or ()))
        for consumption in device.body.get("consumesCounters") or ()
    ]


def _groups_of(counter_set: str, devices: Iterable[ModelDevice]) -> list[frozenset[str]]:
    return [groups for device in devices for name, groups in _groups(device) if name == counter_set]


def _violated_constraint(problem: Problem, choices: Sequence[ModelChoice]) -> str | None:
    for index, claim in enumerate(problem.claims):
        constraints: list[Object] = claim["spec"]["devices"].get("constraints") or []
        for constraint in constraints:
            name = constraint.get("matchAttribute") or constraint["distinctAttribute"]
            values = [
                problem.attribute(choice.alternative, choice.device, name)
                for choice in choices
                if choice.claim == index
                and choice.alternative.is_meant_by(constraint.get("requests") or ())
            ]
            lists = "DRAListTypeAttributes" in problem.gates
            agree = all_match if "matchAttribute" in constraint else _all_distinct
            if not agree(values, lists=lists):
                return f"the constraint on {name} is violated: {values}"
    return None


def all_match(values: Sequence[Mapping[str, object] | None], *, lists: bool) -> bool:
    """Whether all devices have an attribute, and a value of it in common."""
    sets = _sets(values, lists=lists)
    if sets is None:
        return False
    return len(sets) == 1 or not sets or bool(frozenset.intersection(*sets))


def _all_distinct(values: Sequence[Mapping[str, object] | None], *, lists: bool) -> bool:
    sets = _sets(values, lists=lists)
    if sets is None or (len(sets) > 1 and not all(sets)):
        return False
    return len(frozenset().union(*sets)) == sum(map(len, sets))


def _sets(
    values: Sequence[Mapping[str, object] | None], *, lists: bool
) -> list[frozenset[object]] | None:
    """Each attribute as the set of its values; None if one is missing.

    Without list attributes, a list is comparable to nothing: it has no values.
    """
    sets: list[frozenset[object]] = []
    for attribute in values:
        if attribute is None:
            return None
        ((kind, value),) = attribute.items()
        if isinstance(value, list | tuple):
            sets.append(frozenset((kind.removesuffix("s"), each) for each in value if lists))
        else:
            sets.append(frozenset({(kind, value)}))
    return sets


def _too_many(choices: Sequence[ModelChoice]) -> str | None:
    for claim, count in Counter(choice.claim for choice in choices).items():
        if count > _DEVICES_PER_CLAIM:
            return f"claim {claim} has {count} devices"
    return None
