"""Overloads of functions."""

from collections.abc import Callable
from dataclasses import dataclass

from carina_dra.cel.types import Type
from carina_dra.cel.values import Value


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
    cost: Callable[..., int] | None = None
    """The cost of a call with given arguments; 1 if None."""
    checks_kinds: bool = False
    """Whether the implementation checks the types of its arguments itself."""


def function(
    name: str,
    parameters: tuple[Type, ...],
    result: Type,
    implementation: Callable[..., Value],
    cost: Callable[..., int] | None = None,
    *,
    checks_kinds: bool = False,
) -> Overload:
    """A function without a receiver."""
    return Overload(
        name,
        is_member=False,
        parameters=parameters,
        result=result,
        implementation=implementation,
        cost=cost,
        checks_kinds=checks_kinds,
    )


def method(
    name: str,
    parameters: tuple[Type, ...],
    result: Type,
    implementation: Callable[..., Value],
    cost: Callable[..., int] | None = None,
) -> Overload:
    """A function that is called as a method of its first argument."""
    return Overload(
        name,
        is_member=True,
        parameters=parameters,
        result=result,
        implementation=implementation,
        cost=cost,
    )


def tenth(size: int) -> int:
    """The cost of a pass over `size` characters or elements."""
    return (size + 9) // 10
