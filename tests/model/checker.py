"""Whether an answer is an allocation that the rules allow."""

from collections.abc import Sequence
from typing import Any

from tests.model.capacity import nanos
from tests.model.pools import Object, is_for_node
from tests.model.problem import ModelChoice, Problem
from tests.model.rules import conflict, incompleteness


def violation(problem: Problem, allocations: Sequence[Object]) -> str | None:
    """The rule that the allocations of all claims break, if there is one."""
    if len(allocations) != len(problem.claims):
        return f"{len(allocations)} allocations for {len(problem.claims)} claims"
    choices: list[ModelChoice] = []
    for claim, allocation in enumerate(allocations):
        for result in allocation.get("devices", {}).get("results") or ():
            choice = choice_of(problem, claim, result)
            if choice is None:
                return f"no device or request: {result}"
            wrong = _wrong_fields(problem, choice, result)
            if wrong:
                return f"{wrong}: {result}"
            choices.append(choice)
        selector = allocation.get("nodeSelector")
        if selector and not is_for_node({"nodeSelector": selector}, problem.node):
            return f"the node selector excludes the node: {selector}"
    return incompleteness(problem, choices) or conflict(problem, choices)


def choices_of(problem: Problem, allocations: Sequence[Object]) -> tuple[ModelChoice, ...]:
    """The devices of an allocation that is valid, in its order."""
    found = [
        choice_of(problem, claim, result)
        for claim, allocation in enumerate(allocations)
        for result in allocation["devices"]["results"]
    ]
    return tuple(choice for choice in found if choice is not None)


def choice_of(problem: Problem, claim: int, result: Object) -> ModelChoice | None:
    """The choice that a result stands for; None if its request or device does not exist."""
    device = problem.devices.get((result["driver"], result["pool"], result["device"]))
    for request, alternatives in enumerate(problem.requests[claim]):
        for alternative in alternatives:
            if alternative.name == result["request"] and device is not None:
                return ModelChoice(claim, request, alternative, device)
    return None


def _wrong_fields(problem: Problem, choice: ModelChoice, result: Object) -> str | None:
    """The fields of a result that do not say what the request and the device do."""
    request, device = choice.alternative.body, choice.device.body
    binding = "DRADeviceBindingConditions" in problem.gates
    expected: dict[str, Any] = {
        "adminAccess": choice.alternative.is_admin,
        "tolerations": request.get("tolerations") or [],
        "bindingConditions": (device.get("bindingConditions") or []) if binding else [],
        "bindingFailureConditions": (
            (device.get("bindingFailureConditions") or []) if binding else []
        ),
    }
    for name, value in expected.items():
        if (result.get(name) or type(value)()) != value:
            return f"{name} should be {value}"
    is_share = problem.is_shareable(choice.device)
    if ("shareID" in result) != is_share:
        return "shares have an ID, and whole devices have none"
    given = {name: nanos(text) for name, text in (result.get("consumedCapacity") or {}).items()}
    taken = problem.amounts(choice.alternative, choice.device) if is_share else {}
    if given != taken:
        return f"consumedCapacity should be {taken} in billionths"
    return None
