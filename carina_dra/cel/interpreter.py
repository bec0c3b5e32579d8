"""The functions of compiled nodes."""

from collections.abc import Collection, Iterable, Sequence
from typing import Final

from carina_dra.cel.calling import Evaluate, Frame
from carina_dra.cel.errors import BudgetExceededError, EvaluationError
from carina_dra.cel.values import NONE, Optional, Value, built, no_overload, put

DEVICE_FIELDS: Final[dict[str, Evaluate]] = {
    "driver": lambda frame: frame[0].driver,
    "attributes": lambda frame: frame[0].attributes,
    "capacity": lambda frame: frame[0].capacity,
    "allowMultipleAllocations": lambda frame: frame[0].allow_multiple_allocations,
}
"""`device.field`."""
_NOT_YET: Final = object()
_ERROR_COST: Final = 10
"""The cost of an error that is absorbed."""


def variable(slot: int) -> Evaluate:
    """A variable of a loop."""
    return lambda frame: frame[slot]


def bound_variable(slot: int, value: Evaluate) -> Evaluate:
    """A variable of `cel.bind`, evaluated at its first use."""

    def run(frame: Frame) -> Value:
        if frame[slot] is _NOT_YET:
            frame[slot] = value(frame)
        return frame[slot]

    return run


def binding(slot: int, body: Evaluate) -> Evaluate:
    """`cel.bind`."""

    def run(frame: Frame) -> Value:
        frame[slot] = _NOT_YET
        return body(frame)

    return run


def sequence(slot: int, steps: Sequence[Evaluate], last: Evaluate) -> Evaluate:
    """A long chain of operators: each step finds the value of the one before in a slot."""

    def run(frame: Frame) -> Value:
        for step in steps:
            frame[slot] = step(frame)
        return last(frame)

    return run


def logic(terms: Sequence[Evaluate], *, decisive: bool) -> Evaluate:
    """`&&` and `||`."""
    return lambda frame: decided(frame, terms, decisive=decisive)


def decided(frame: Frame, terms: Iterable[Evaluate], *, decisive: bool) -> Value:
    """`decisive` if any term has that value, and the opposite if no term has.

    A term that decides absorbs the errors of the others; otherwise the first error is raised.
    """
    problem: EvaluationError | None = None
    for term in terms:
        try:
            value = term(frame)
        except BudgetExceededError:
            raise
        except EvaluationError as failure:
            problem = problem or failure
            if frame[1] is not None:
                frame[1].spend(_ERROR_COST)
            continue
        if value is decisive:
            return decisive
        if not isinstance(value, bool):
            problem = problem or no_overload()
    if problem is not None:
        raise problem
    return not decisive


def conditional(condition: Evaluate, yes: Evaluate, no: Evaluate) -> Evaluate:
    """`condition ? yes : no`."""

    def run(frame: Frame) -> Value:
        decided = condition(frame)
        if decided is True:
            return yes(frame)
        if decided is False:
            return no(frame)
        raise no_overload()

    return run


def listing(items: Sequence[Evaluate], optional: Collection[int]) -> Evaluate:
    """`[item, ?item]`."""
    if not optional:
        return lambda frame: tuple([item(frame) for item in items])

    def run(frame: Frame) -> Value:
        made: list[Value] = []
        for index, item in enumerate(items):
            value = item(frame)
            made += _present(value) if index in optional else (value,)
        return tuple(made)

    return run


def mapping(entries: Sequence[tuple[Evaluate, Evaluate, bool]]) -> Evaluate:
    """`{key: value, ?key: value}`."""

    def run(frame: Frame) -> Value:
        made: dict[Value, Value] = {}
        for key_of, value_of, is_optional in entries:
            key, value = key_of(frame), value_of(frame)
            for present in _present(value) if is_optional else (value,):
                put(made, key, present)
        return built(made)

    return run


def optional_map(operand: Evaluate, slot: int, body: Evaluate, *, is_flat: bool) -> Evaluate:
    """`operand.optMap(name, body)` or `.optFlatMap(name, body)`."""

    def run(frame: Frame) -> Value:
        for value in _present(operand(frame)):
            frame[slot] = value
            made = body(frame)
            return made if is_flat else Optional((made,))
        return NONE

    return run


def or_else(operand: Evaluate, other: Evaluate, *, is_value: bool) -> Evaluate:
    """`operand.or(other)` or `.orValue(other)`, which is evaluated only if there is no value.

    As cel-go's optional types do it, neither costs anything by itself.
    """

    def run(frame: Frame) -> Value:
        found = operand(frame)
        for value in _present(found):
            return value if is_value else found
        return other(frame)

    return run


def _present(value: Value) -> tuple[Value, ...]:
    if not isinstance(value, Optional):
        raise no_overload()
    return value.values
