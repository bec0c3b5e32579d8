"""Calls functions: overloads are chosen by static types, or else by the values."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from carina_dra.cel.budget import no_charge
from carina_dra.cel.functions import FUNCTIONS
from carina_dra.cel.functions.overload import Overload, one_unit
from carina_dra.cel.types import DYN, Type, filled_in, is_open, may_be, suits
from carina_dra.cel.values import Value, kind, no_overload

Frame: TypeAlias = list[Value]
"""The device, the budget, and a slot for each variable."""
Evaluate: TypeAlias = Callable[[Frame], Value]


@dataclass(frozen=True, slots=True)
class TypedNode:
    """A compiled node: its function and the static type of its result."""

    type: Type
    run: Evaluate
    is_sure: bool = False
    """Whether the values certainly have that type, so that it does not come from `dyn`."""
    is_constant: bool = False
    """Whether it is a literal, or a conversion of literals."""


def call(
    name: str, typed: list[TypedNode], *, is_member: bool, is_counted: bool
) -> TypedNode | None:
    """A call of a function, or of a method of its first argument; None if no overload matches."""
    given = [argument.type for argument in typed]
    results: list[Type] = []
    suitable: list[Overload] = []
    for overload in FUNCTIONS[name]:
        bound: dict[str, Type] = {}
        if overload.is_member == is_member and _suits(overload, given, bound):
            suitable.append(overload)
            results.append(filled_in(overload.result, bound))
    if not suitable:
        return None
    # An open type takes the first overload that matches.
    is_one = any(map(is_open, given)) or all(other == results[0] for other in results)
    result = results[0] if is_one else DYN
    is_sure = is_one and result != DYN
    if suitable[0].result.name.startswith("?") or suitable[0].result.parameters:
        is_sure = is_sure and all(argument.is_sure for argument in typed)
    return TypedNode(result, _calling(suitable, typed, is_counted=is_counted), is_sure=is_sure)


def _suits(overload: Overload, given: list[Type], bound: dict[str, Type]) -> bool:
    return len(overload.parameters) == len(given) and all(
        suits(wanted, type_, bound)
        for wanted, type_ in zip(overload.parameters, given, strict=True)
    )


def _calling(suitable: list[Overload], typed: list[TypedNode], *, is_counted: bool) -> Evaluate:
    runs = tuple(argument.run for argument in typed)
    if not _is_decided(suitable, typed):
        choose = _chooser(suitable)

        def run(frame: Frame) -> Value:
            arguments = [argument(frame) for argument in runs]
            overload = choose(arguments)
            spend = no_charge
            if is_counted:
                spend = frame[1].spend
                spend(overload.cost(*arguments))
            if overload.spends:
                return overload.implementation(spend, *arguments)
            return overload.implementation(*arguments)

        return run
    return _counted(suitable[0], runs) if is_counted else _uncounted(suitable[0], runs)


def _counted(overload: Overload, runs: tuple[Evaluate, ...]) -> Evaluate:
    implementation, cost = overload.implementation, overload.cost
    if overload.spends:

        def spending(frame: Frame) -> Value:
            arguments = [argument(frame) for argument in runs]
            spend = frame[1].spend
            spend(cost(*arguments))
            return implementation(spend, *arguments)

        return spending
    if cost is one_unit:

        def cheap(frame: Frame) -> Value:
            arguments = [argument(frame) for argument in runs]
            frame[1].spend(1)
            return implementation(*arguments)

        return cheap

    def counted(frame: Frame) -> Value:
        arguments = [argument(frame) for argument in runs]
        frame[1].spend(cost(*arguments))
        return implementation(*arguments)

    return counted


def _uncounted(overload: Overload, runs: tuple[Evaluate, ...]) -> Evaluate:
    implementation = overload.implementation
    if overload.spends:
        return lambda frame: implementation(no_charge, *[run(frame) for run in runs])
    match runs:
        case (one,):
            return lambda frame: implementation(one(frame))
        case (one, other):
            return lambda frame: implementation(one(frame), other(frame))
        case _:
            return lambda frame: implementation(*[run(frame) for run in runs])


def _is_decided(suitable: list[Overload], typed: list[TypedNode]) -> bool:
    """Whether the first overload can be called without a look at the kinds of the values."""
    if suitable[0].checks_kinds and len({overload.implementation for overload in suitable}) == 1:
        return True
    return len(suitable) == 1 and all(
        argument.is_sure or wanted == DYN or wanted.name.startswith("?")
        for argument, wanted in zip(typed, suitable[0].parameters, strict=True)
    )


def _chooser(suitable: list[Overload]) -> Callable[[list[Value]], Overload]:
    """Chooses an overload by the kinds of the arguments, once per combination."""
    chosen: dict[tuple[type, ...], Overload | None] = {}

    def choose(arguments: list[Value]) -> Overload:
        types = tuple(map(type, arguments))
        if types not in chosen:
            kinds = [kind(argument) for argument in arguments]
            suits_kinds = (
                overload for overload in suitable if all(map(may_be, kinds, overload.parameters))
            )
            chosen[types] = next(suits_kinds, None)
        overload = chosen[types]
        if overload is None:
            raise no_overload()
        return overload

    return choose
