"""The macros that iterate over lists and maps.

`all` and `exists` absorb errors if an element decides; the others raise the first error.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from carina_dra.cel.calling import Frame, Run
from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.lists import ordered
from carina_dra.cel.interpreter import decided
from carina_dra.cel.syntax import LoopKind
from carina_dra.cel.values import Value, no_overload

_STEP_COST: Final = 3
"""The cost of one iteration, in addition to the cost of its parts."""


def loop(
    kind: LoopKind, over: Run, slots: Sequence[int], condition: Run | None, body: Run | None
) -> Run:
    """The function of a macro; `slots` are those of its variables."""
    match kind:
        case LoopKind.ALL | LoopKind.EXISTS if condition is not None:
            return _quantifier(over, slots, condition, decisive=kind is LoopKind.EXISTS)
        case LoopKind.EXISTS_ONE if condition is not None:
            return lambda frame: sum(1 for _ in _passing(frame, over, slots, condition)) == 1
        case LoopKind.FILTER if condition is not None:
            return lambda frame: tuple(
                element[-1] for element in _passing(frame, over, slots, condition)
            )
        case LoopKind.MAP if body is not None:
            return lambda frame: tuple(
                [body(frame) for _ in _passing(frame, over, slots, condition)]
            )
        case LoopKind.SORT_BY if body is not None:
            return lambda frame: _sorted(frame, over, slots, body)
        case LoopKind.TRANSFORM_MAP if body is not None:
            return lambda frame: {
                element[0]: body(frame) for element in _passing(frame, over, slots, condition)
            }
        case LoopKind.TRANSFORM_ENTRY if body is not None:
            return lambda frame: _merged(
                body(frame) for _ in _passing(frame, over, slots, condition)
            )
        case _:
            raise AssertionError(f"{kind} lacks a part")


def _rounds(frame: Frame, over: Run, slots: Sequence[int]) -> Iterator[tuple[Value, Value]]:
    """Sets the variables for each element.

    Yields the index or key, and the value that a single variable has.
    """
    through = over(frame)
    if isinstance(through, dict):
        pairs: Iterator[tuple[Value, Value]] = iter(through.items())
    elif isinstance(through, tuple):
        pairs = iter(enumerate(through))
    else:
        raise EvaluationError(f"got '{type(through).__name__}', expected iterable type")
    for key, value in pairs:
        frame[1].spend(_STEP_COST)
        single = key if isinstance(through, dict) else value
        if len(slots) > 1:
            frame[slots[0]], frame[slots[1]] = key, value
        else:
            frame[slots[0]] = single
        yield key, single


def _passing(
    frame: Frame, over: Run, slots: Sequence[int], condition: Run | None
) -> Iterator[tuple[Value, Value]]:
    for element in _rounds(frame, over, slots):
        if condition is None:
            yield element
            continue
        passes = condition(frame)
        if passes is True:
            yield element
        elif passes is not False:
            raise no_overload()


def _quantifier(over: Run, slots: Sequence[int], condition: Run, *, decisive: bool) -> Run:
    def run(frame: Frame) -> Value:
        conditions = (condition for _ in _rounds(frame, over, slots))
        return decided(frame, conditions, decisive=decisive)

    return run


def _sorted(frame: Frame, over: Run, slots: Sequence[int], key: Run) -> Value:
    items: list[Value] = []
    keys: list[Value] = []
    for _, item in _rounds(frame, over, slots):
        items.append(item)
        keys.append(key(frame))
    return ordered(items, keys)


def _merged(maps: Iterator[Value]) -> Value:
    merged: dict[Value, Value] = {}
    for entries in maps:
        if not isinstance(entries, dict):
            raise no_overload()
        for key, value in entries.items():
            if key in merged:
                raise EvaluationError(f"insert failed: key {key} already exists")
            merged[key] = value
    return merged
