"""Overloads of functions."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, TypeAlias

from carina_dra.cel.functions.cost import read
from carina_dra.cel.types import Type
from carina_dra.cel.values import Value

Spend: TypeAlias = Callable[[int], None]
"""Charges a cost; raises BudgetExceededError if the limit is exceeded."""

_SMALL: Final = frozenset(
    {
        "bool",
        "int",
        "uint",
        "double",
        "type",
        "null_type",
        "google.protobuf.Duration",
        "google.protobuf.Timestamp",
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "kubernetes.NamedFormat",
        "net.IP",
        "net.CIDR",
    }
)
"""The types whose values have a limited size."""
_TEXTS: Final = frozenset({"string", "bytes"})


@dataclass(frozen=True, slots=True)
class Overload:
    """A signature and its implementation."""

    name: str
    is_member: bool
    """Whether it is called as a method of its first argument."""
    parameters: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Value]
    """Raises EvaluationError."""
    cost: Callable[..., int]
    """The cost of a call with given arguments."""
    checks_kinds: bool = False
    """Whether the implementation checks the types of its arguments itself."""
    spends: bool = False
    """Whether the implementation charges more by itself: its first argument is then a `Spend`."""


def function(
    name: str,
    parameters: tuple[Type, ...],
    result: Type,
    implementation: Callable[..., Value],
    cost: Callable[..., int] | None = None,
    *,
    checks_kinds: bool = False,
    spends: bool = False,
) -> Overload:
    """A function without a receiver. `cost` may be left out if no argument is a collection."""
    return Overload(
        name,
        is_member=False,
        parameters=parameters,
        result=result,
        implementation=implementation,
        cost=cost or _cost(name, parameters),
        checks_kinds=checks_kinds,
        spends=spends,
    )


def method(
    name: str,
    parameters: tuple[Type, ...],
    result: Type,
    implementation: Callable[..., Value],
    cost: Callable[..., int] | None = None,
    *,
    spends: bool = False,
) -> Overload:
    """A function that is called as a method of its first argument."""
    return Overload(
        name,
        is_member=True,
        parameters=parameters,
        result=result,
        implementation=implementation,
        cost=cost or _cost(name, parameters),
        spends=spends,
    )


def _cost(name: str, parameters: tuple[Type, ...]) -> Callable[..., int]:
    names = {parameter.name for parameter in parameters}
    if names & _TEXTS and names <= _TEXTS | _SMALL:
        return read
    if names <= _SMALL:
        return one_unit
    raise AssertionError(f"{name} takes collections, so it must say what it costs")


def one_unit(*_: Value) -> int:
    """The cost of a call that takes little and constant time."""
    return 1
