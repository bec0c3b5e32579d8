"""The macros that iterate over lists and maps.

`all` and `exists` absorb errors if an element decides; the others raise the first error.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Final, TypeAlias

from carina_dra.cel.calling import Evaluate, Frame
from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import ordering
from carina_dra.cel.functions.lists import ordered
from carina_dra.cel.interpreter import decided
from carina_dra.cel.syntax import LoopKind
from carina_dra.cel.values import Value, built, kind, no_overload, put, shown

_Rounds: TypeAlias = Callable[[Frame], Iterator[tuple[Value, Value]]]

_STEP_COST: Final = 3
"""The cost of one iteration, in addition to the cost of its parts."""
_STORE_COSTS: Final[dict[LoopKind, int]] = {
    LoopKind.FILTER: 1,
    LoopKind.MAP: 2,
    LoopKind.SORT_BY: 4,
    LoopKind.TRANSFORM_MAP: 6,
}
"""What an iteration costs more if it stores an element."""


def loop(
    macro: LoopKind,
    over: Evaluate,
    slots: Sequence[int],
    condition: Evaluate | None,
    body: Evaluate | None,
    uncharged: int,
) -> Evaluate:
    """The function of a macro.

    slots: those of its variables.
    uncharged: the cost of an iteration for parts that do not charge it themselves.
    """
    step = _STEP_COST + uncharged + _STORE_COSTS.get(macro, 0)
    rounds = _rounds(over, slots, step)
    passing = _passing(rounds, condition)
    match macro:
        case LoopKind.ALL | LoopKind.EXISTS if condition is not None:
            return _quantifier(rounds, condition, decisive=macro is LoopKind.EXISTS)
        case LoopKind.EXISTS_ONE if condition is not None:
            return lambda frame: sum(1 for _ in passing(frame)) == 1
        case LoopKind.FILTER if condition is not None:
            return lambda frame: tuple([element[-1] for element in passing(frame)])
        case LoopKind.MAP if body is not None:
            return lambda frame: tuple([body(frame) for _ in passing(frame)])
        case LoopKind.SORT_BY if body is not None:
            return lambda frame: _sorted(frame, rounds, body)
        case LoopKind.TRANSFORM_MAP if body is not None:
            return lambda frame: _transformed(frame, passing, body)
        case LoopKind.TRANSFORM_ENTRY if body is not None:
            return lambda frame: _merged(frame, passing, body)
        case _:
            raise AssertionError(f"{macro} lacks a part")


def _rounds(over: Evaluate, slots: Sequence[int], step: int) -> _Rounds:
    """Sets the variables for each element.

    Yields the index or key, and the value that a single variable has.
    """

    def rounds(frame: Frame) -> Iterator[tuple[Value, Value]]:
        through = over(frame)
        if isinstance(through, dict):
            pairs: Iterator[tuple[Value, Value]] = iter(through.items())
        elif isinstance(through, tuple):
            pairs = iter(enumerate(through))
        else:
            raise EvaluationError(f"got '{kind(through)}', expected iterable type")
        spend = frame[1].spend
        for key, value in pairs:
            spend(step)
            single = key if isinstance(through, dict) else value
            if len(slots) > 1:
                frame[slots[0]], frame[slots[1]] = key, value
            else:
                frame[slots[0]] = single
            yield key, single

    return rounds


def _passing(rounds: _Rounds, condition: Evaluate | None) -> _Rounds:
    """The elements for which the condition is true."""
    if condition is None:
        return rounds

    def passing(frame: Frame) -> Iterator[tuple[Value, Value]]:
        for element in rounds(frame):
            passes = condition(frame)
            if passes is True:
                yield element
            elif passes is not False:
                raise no_overload()

    return passing


def _quantifier(rounds: _Rounds, condition: Evaluate, *, decisive: bool) -> Evaluate:
    def run(frame: Frame) -> Value:
        conditions = (condition for _ in rounds(frame))
        return decided(frame, conditions, decisive=decisive)

    return run


def _sorted(frame: Frame, rounds: _Rounds, key: Evaluate) -> Value:
    items: list[Value] = []
    keys: list[Value] = []
    for _, item in rounds(frame):
        items.append(item)
        keys.append(key(frame))
    frame[1].spend(ordering(keys))
    return ordered(items, keys)


def _transformed(frame: Frame, passing: _Rounds, body: Evaluate) -> Value:
    made: dict[Value, Value] = {}
    for key, _ in passing(frame):
        put(made, key, body(frame))
    return built(made)


def _merged(frame: Frame, passing: _Rounds, body: Evaluate) -> Value:
    merged: dict[Value, Value] = {}
    for _ in passing(frame):
        entries = body(frame)
        if not isinstance(entries, dict):
            raise no_overload()
        for key, value in entries.items():
            frame[1].spend(_STORE_COSTS[LoopKind.TRANSFORM_MAP])
            if key in merged:
                raise EvaluationError(f"insert failed: key {shown(key)} already exists")
            put(merged, key, value)
    return built(merged)
