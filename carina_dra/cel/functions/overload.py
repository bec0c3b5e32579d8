"""One way to call a function."""

from collections.abc import Callable
from dataclasses import dataclass

from carina_dra.cel.types import Type
from carina_dra.cel.values import Value


@dataclass(frozen=True, slots=True)
class Overload:
    """A signature, and what it does."""

    name: str
    is_member: bool
    """Whether the first parameter stands before the dot."""
    parameters: tuple[Type, ...]
    result: Type
    implementation: Callable[..., Value]
    """Raises EvaluationError."""
    cost: Callable[..., int] | None = None
    """What a call costs, by its arguments; 1 if not given."""
    checks_kinds: bool = False
    """Whether it says itself what it is not for; others are called with what suits them only."""


def function(
    name: str,
    parameters: tuple[Type, ...],
    result: Type,
    implementation: Callable[..., Value],
    cost: Callable[..., int] | None = None,
    *,
    checks_kinds: bool = False,
) -> Overload:
    """A function that is called by its name alone."""
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
    """A function that is called on its first argument."""
    return Overload(
        name,
        is_member=True,
        parameters=parameters,
        result=result,
        implementation=implementation,
        cost=cost,
    )


def tenth(size: int) -> int:
    """The cost of going through so many characters or elements."""
    return (size + 9) // 10
