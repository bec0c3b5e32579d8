"""Calling functions: which overload suits the types, or later the values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.cel.functions import FUNCTIONS
from carina_dra.cel.functions.overload import Overload
from carina_dra.cel.types import DYN, Type, filled_in, is_open, may_be, suits
from carina_dra.cel.values import Value, kind, no_overload

Frame: TypeAlias = list[Value]
"""The device, the budget, and the variables of loops."""
Run: TypeAlias = Callable[[Frame], Value]


@dataclass(frozen=True, slots=True)
class Typed:
    """What runs, and the type of what it gives."""

    type: Type
    run: Run
    is_sure: bool = False
    """Whether values are sure to be of that type: it was not `dyn` that was taken for it."""
    is_constant: bool = False
    """Whether it is written out, or made of what is by a conversion."""


def call(name: str, typed: list[Typed], *, is_member: bool, is_counted: bool) -> Typed | None:
    """A call of a function, on its first argument if it is a member; None if none suits."""
    given = [each.type for each in typed]
    results: list[Type] = []
    suitable: list[Overload] = []
    for overload in FUNCTIONS[name]:
        bound: dict[str, Type] = {}
        if overload.is_member == is_member and _suits(overload, given, bound):
            suitable.append(overload)
            results.append(filled_in(overload.result, bound))
    if not suitable:
        return None
    # What is open takes the first meaning that it can have.
    is_one = any(map(is_open, given)) or all(each == results[0] for each in results)
    result = results[0] if is_one else DYN
    is_sure = is_one and result != DYN
    if suitable[0].result.name.startswith("?") or suitable[0].result.parameters:
        is_sure = is_sure and all(each.is_sure for each in typed)
    return Typed(result, _calling(suitable, typed, is_counted=is_counted), is_sure=is_sure)


def _suits(overload: Overload, given: list[Type], bound: dict[str, Type]) -> bool:
    return len(overload.parameters) == len(given) and all(
        suits(wanted, each, bound) for wanted, each in zip(overload.parameters, given, strict=True)
    )


def _calling(suitable: list[Overload], typed: list[Typed], *, is_counted: bool) -> Run:
    does = suitable[0].does
    if len({each.does for each in suitable}) > 1 or not suitable[0].checks_kinds:
        is_certain = len(suitable) == 1 and all(
            each.is_sure or wanted == DYN or wanted.name.startswith("?")
            for each, wanted in zip(typed, suitable[0].parameters, strict=True)
        )
        if not is_certain:
            does = _dispatcher(suitable)
    runs = tuple(each.run for each in typed)
    if is_counted:
        return _counted_call(does, runs, suitable[0].cost)
    match runs:
        case (one,):
            return lambda frame: does(one(frame))
        case (one, other):
            return lambda frame: does(one(frame), other(frame))
        case _:
            return lambda frame: does(*[run(frame) for run in runs])


def _dispatcher(suitable: list[Overload]) -> Callable[..., Value]:
    """Chooses among overloads by the kinds of the arguments, once for each combination."""
    chosen: dict[tuple[type, ...], Callable[..., Value] | None] = {}

    def dispatch(*arguments: Value) -> Value:
        types = tuple(map(type, arguments))
        if types not in chosen:
            kinds = [kind(argument) for argument in arguments]
            chosen[types] = next(
                (
                    overload.does
                    for overload in suitable
                    if all(map(may_be, kinds, overload.parameters))
                ),
                None,
            )
        does = chosen[types]
        if does is None:
            raise no_overload()
        return does(*arguments)

    return dispatch


def _counted_call(
    does: Callable[..., Value], runs: tuple[Run, ...], cost: Callable[..., int] | None
) -> Run:
    def run(frame: Frame) -> Value:
        arguments = [each(frame) for each in runs]
        if cost is None:
            frame[1].spend(1)
        else:
            try:
                price = cost(*arguments)
            except TypeError:
                price = 1  # of kinds that the overload is not for: the call will say so
            frame[1].spend(price)
        return does(*arguments)

    return run
