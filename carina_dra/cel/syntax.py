"""The syntax tree of an expression, with macros expanded.

A chain of operators with the same precedence is one node, so that only parentheses add depth.
"""

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from carina_dra.cel.values import Value


@dataclass(frozen=True, slots=True)
class Literal:
    """A literal value."""

    at: int
    value: Value


@dataclass(frozen=True, slots=True)
class Name:
    """A variable."""

    at: int
    name: str


@dataclass(frozen=True, slots=True)
class Select:
    """`operand.field`, `operand.?field`, or `has(operand.field)`."""

    at: int
    operand: "SyntaxNode"
    field: str
    is_optional: bool = False
    is_test: bool = False


@dataclass(frozen=True, slots=True)
class Index:
    """`operand[key]` or `operand[?key]`."""

    at: int
    operand: "SyntaxNode"
    key: "SyntaxNode"
    is_optional: bool = False


@dataclass(frozen=True, slots=True)
class FunctionCall:
    """`function(arguments)` or `target.function(arguments)`; operators are functions."""

    at: int
    function: str
    target: "SyntaxNode | None"
    arguments: tuple["SyntaxNode", ...]


@dataclass(frozen=True, slots=True)
class Chain:
    """`first op term op term`, from left to right."""

    at: int
    first: "SyntaxNode"
    rest: tuple[tuple[int, str, "SyntaxNode"], ...]
    """Position, function of the operator, and term."""


@dataclass(frozen=True, slots=True)
class Logic:
    """`term && term` or `term || term`; a term that decides absorbs the errors of the others."""

    at: int
    decisive: bool
    terms: tuple["SyntaxNode", ...]


@dataclass(frozen=True, slots=True)
class Conditional:
    """`condition ? yes : no`."""

    at: int
    condition: "SyntaxNode"
    yes: "SyntaxNode"
    no: "SyntaxNode"


@dataclass(frozen=True, slots=True)
class ListLiteral:
    """`[item, ?item]`."""

    at: int
    items: tuple["SyntaxNode", ...]
    optional: frozenset[int]
    """Indexes of the items that are omitted if they have no value."""


@dataclass(frozen=True, slots=True)
class MapLiteral:
    """`{key: value, ?key: value}`."""

    at: int
    entries: tuple[tuple["SyntaxNode", "SyntaxNode", bool], ...]
    """Key, value, and whether the entry is omitted if it has no value."""


class LoopKind(Enum):
    """The result of a macro that iterates."""

    ALL = "all"
    EXISTS = "exists"
    EXISTS_ONE = "exists_one"
    MAP = "map"
    FILTER = "filter"
    TRANSFORM_MAP = "transformMap"
    TRANSFORM_ENTRY = "transformMapEntry"
    SORT_BY = "sortBy"


@dataclass(frozen=True, slots=True)
class Comprehension:
    """A macro that iterates over a list or map."""

    at: int
    kind: LoopKind
    over: "SyntaxNode"
    names: tuple[str, ...]
    """One variable (element or key), or two (index or key, and value)."""
    condition: "SyntaxNode | None"
    """Selects elements."""
    body: "SyntaxNode | None"
    """Computes the value for an element."""


@dataclass(frozen=True, slots=True)
class Bind:
    """`cel.bind(name, value, body)`."""

    at: int
    name: str
    value: "SyntaxNode"
    body: "SyntaxNode"


@dataclass(frozen=True, slots=True)
class OptionalMap:
    """`operand.optMap(name, body)` or `.optFlatMap(name, body)`."""

    at: int
    operand: "SyntaxNode"
    name: str
    body: "SyntaxNode"
    is_flat: bool


SyntaxNode: TypeAlias = (
    Literal
    | Name
    | Select
    | Index
    | FunctionCall
    | Chain
    | Logic
    | Conditional
    | ListLiteral
    | MapLiteral
    | Comprehension
    | Bind
    | OptionalMap
)
