"""Static types of expressions.

`dyn` is a type that is not known at compile time: it matches every type, and is checked when the
expression is evaluated.
"""

from dataclasses import dataclass, field
from typing import Final

from carina_dra.cel.errors import CompileError

_MAX_SIZE: Final = 100
"""The maximal number of types in a type; a chain of variables could double it each time."""


@dataclass(frozen=True, slots=True)
class Type:
    """A type. Its name is the kind of its values.

    Raises:
        CompileError: it is too large.
    """

    name: str
    parameters: tuple["Type", ...] = ()
    size: int = field(init=False, repr=False, compare=False)
    """The number of types it consists of."""

    def __post_init__(self) -> None:
        size = 1 + sum(parameter.size for parameter in self.parameters)
        if size > _MAX_SIZE:
            raise CompileError("compilation failed: ERROR: a type is nested too deeply")
        object.__setattr__(self, "size", size)

    def __str__(self) -> str:
        inner = ", ".join(map(str, self.parameters))
        return f"{self.name}({inner})" if inner else self.name


DYN: Final = Type("dyn")
BOOL: Final = Type("bool")
INT: Final = Type("int")
UINT: Final = Type("uint")
DOUBLE: Final = Type("double")
STRING: Final = Type("string")
BYTES: Final = Type("bytes")
NULL: Final = Type("null_type")
DURATION: Final = Type("google.protobuf.Duration")
TIMESTAMP: Final = Type("google.protobuf.Timestamp")
QUANTITY: Final = Type("kubernetes.Quantity")
SEMVER: Final = Type("kubernetes.Semver")
IP: Final = Type("net.IP")
CIDR: Final = Type("net.CIDR")
URL: Final = Type("kubernetes.URL")
FORMAT: Final = Type("kubernetes.NamedFormat")
DEVICE: Final = Type("kubernetes.DRADevice")
UNBOUND: Final = Type("unbound")
"""The type of the elements of an empty list: it matches every type."""
A: Final = Type("?A")
"""A type variable of signatures, like B."""
B: Final = Type("?B")

_NEVER_NULL: Final = frozenset(
    {"bool", "int", "uint", "double", "string", "bytes", "list", "map", "type"}
)


def list_of(item: Type) -> Type:
    """A list."""
    return Type("list", (item,))


def map_of(key: Type, value: Type) -> Type:
    """A map."""
    return Type("map", (key, value))


def optional_of(value: Type) -> Type:
    """An optional value."""
    return Type("optional_type", (value,))


def type_of(value: Type) -> Type:
    """A type as a value."""
    return Type("type", (value,))


def suits(wanted: Type, given: Type, bound: dict[str, Type]) -> bool:
    """Whether a value of type `given` matches `wanted`.

    bound: the types of A and B so far; they are updated.
    """
    if wanted.name.startswith("?"):
        known = bound.get(wanted.name, UNBOUND)
        if known == UNBOUND or given == DYN:
            bound[wanted.name] = given
            return True
        if known == DYN:
            return True
        if suits(known, given, bound):
            return True
        if suits(given, known, bound):
            bound[wanted.name] = given
            return True
        return False
    if DYN in (wanted, given) or UNBOUND in (wanted, given):
        return True
    if given == NULL and wanted.name not in _NEVER_NULL:
        return True
    if wanted.name != given.name or len(wanted.parameters) != len(given.parameters):
        return False
    if wanted.name == "type":
        return True
    pairs = zip(wanted.parameters, given.parameters, strict=True)
    return all(suits(wanted_type, given_type, bound) for wanted_type, given_type in pairs)


def filled_in(written: Type, bound: dict[str, Type]) -> Type:
    """A type of a signature, with A and B replaced by the types they are bound to."""
    if written.name.startswith("?"):
        return bound.get(written.name, UNBOUND)
    return Type(
        written.name, tuple(filled_in(parameter, bound) for parameter in written.parameters)
    )


def joined(types: list[Type]) -> Type | None:
    """The common type of several values: `dyn` if one of them is, None if they differ."""
    bound: dict[str, Type] = {}
    if not all(suits(A, type_, bound) for type_ in types):
        return None
    return filled_in(A, bound)


def is_same(left: Type, right: Type) -> bool:
    """Whether two types are equal, as the elements of a literal must be."""
    if UNBOUND in (left, right):
        return True
    if left.name != right.name or len(left.parameters) != len(right.parameters):
        return False
    return all(map(is_same, left.parameters, right.parameters))


def is_open(type_: Type) -> bool:
    """Whether it contains UNBOUND."""
    return type_ == UNBOUND or any(map(is_open, type_.parameters))


def may_be(kind_of_value: str, wanted: Type) -> bool:
    """Whether a value of this kind matches `wanted`."""
    return wanted == DYN or wanted.name.startswith("?") or wanted.name == kind_of_value
