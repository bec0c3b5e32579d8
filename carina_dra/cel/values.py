"""The values of expressions, their comparison, and their kinds.

Numbers, strings, bytes and booleans are Python's; a list is a tuple, a map is a dict. Other values
have the types of this module.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
from typing import Any, Final, TypeAlias

from carina_dra.cel.errors import EvaluationError
from carina_dra.quantity import Quantity

Value: TypeAlias = Any
"""Any value of the language."""

INT64_MAX: Final = 2**63 - 1
INT64_MIN: Final = -(2**63)
UINT64_MAX: Final = 2**64 - 1


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class DomainMap(dict[str, Value]):
    """A map of maps in which an absent key has an empty map as its value."""

    __slots__ = ()

    def __missing__(self, key: str) -> Mapping[str, Value]:
        return EMPTY_MAP


EMPTY_MAP: Final[dict[str, Value]] = {}


@dataclass(frozen=True, slots=True)
class Optional:
    """An optional value."""

    values: tuple[Value, ...] = ()


NONE: Final = Optional()


@dataclass(frozen=True, slots=True)
class Duration:
    """A duration."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A point in time, in nanoseconds since 1970-01-01 UTC."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """The result of `type(x)`."""

    name: str


@dataclass(frozen=True, slots=True)
class Ip:
    """An IP address."""

    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with a prefix length."""

    address: IPv4Address | IPv6Address
    prefix: int

    @property
    def network(self) -> IPv4Network | IPv6Network:
        """The network of the address."""
        if isinstance(self.address, IPv4Address):
            return IPv4Network((self.address, self.prefix), strict=False)
        return IPv6Network((self.address, self.prefix), strict=False)


@dataclass(frozen=True, slots=True)
class Url:
    """The parts of a URL."""

    scheme: str
    host: str
    """Host and port."""
    path: str
    query: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A named format of Kubernetes, such as `dns1123Label`."""

    name: str


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version 2.0.0, ordered by precedence, which ignores build metadata."""

    major: int
    minor: int
    patch: int
    prerelease: tuple[str, ...]
    build: tuple[str, ...] = ()

    def __str__(self) -> str:
        prerelease = f"-{'.'.join(self.prerelease)}" if self.prerelease else ""
        build = f"+{'.'.join(self.build)}" if self.build else ""
        return f"{self.major}.{self.minor}.{self.patch}{prerelease}{build}"

    @property
    def precedence(self) -> tuple[object, ...]:
        """The key by which versions are ordered."""
        release = (self.major, self.minor, self.patch)
        if not self.prerelease:
            return (*release, 1)
        parts = ((0, int(part), "") if part.isdigit() else (1, 0, part) for part in self.prerelease)
        return (*release, 0, *parts)


_KINDS: Final[dict[type, str]] = {
    bool: "bool",
    int: "int",
    Uint: "uint",
    float: "double",
    str: "string",
    bytes: "bytes",
    type(None): "null_type",
    tuple: "list",
    dict: "map",
    DomainMap: "map",
    Optional: "optional_type",
    Duration: "google.protobuf.Duration",
    Timestamp: "google.protobuf.Timestamp",
    TypeValue: "type",
    Quantity: "kubernetes.Quantity",
    Semver: "kubernetes.Semver",
    Ip: "net.IP",
    Cidr: "net.CIDR",
    Url: "kubernetes.URL",
    NamedFormat: "kubernetes.NamedFormat",
}
_NUMBERS: Final = frozenset({"int", "uint", "double"})
_ORDERED: Final = frozenset(
    {"bool", "string", "bytes", "google.protobuf.Duration", "google.protobuf.Timestamp"}
)
_STRICT: Final = frozenset(
    {
        "kubernetes.Quantity",
        "kubernetes.Semver",
        "net.IP",
        "net.CIDR",
        "kubernetes.URL",
        "kubernetes.NamedFormat",
    }
)
"""Kinds that can be compared only with the same kind."""


def kind(value: Value) -> str:
    """The kind of a value, as the name of its type."""
    return _KINDS.get(type(value), "kubernetes.DRADevice")


def no_overload() -> EvaluationError:
    """The operation does not support these values."""
    return EvaluationError("no such overload")


def equal(one: Value, other: Value) -> bool:
    """Whether two values are equal; numbers of different kinds can be equal.

    Raises:
        EvaluationError: the first is of a kind that can be compared only with the same kind.
    """
    kind_of_one, kind_of_other = kind(one), kind(other)
    if kind_of_one != kind_of_other:
        if kind_of_one in _STRICT and other is not None:
            raise no_overload()
        return kind_of_one in _NUMBERS and kind_of_other in _NUMBERS and bool(one == other)
    match kind_of_one:
        case "list":
            return len(one) == len(other) and all(map(equal, one, other))
        case "map":
            return len(one) == len(other) and all(
                (found := find(other, key)) and equal(value, found[0]) for key, value in one.items()
            )
        case "optional_type":
            return len(one.values) == len(other.values) and all(
                map(equal, one.values, other.values)
            )
        case "kubernetes.Semver":
            return bool(one.precedence == other.precedence)
        case _:
            return bool(one == other)


def is_same(one: Value, other: Value) -> bool:
    """Whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def less(one: Value, other: Value) -> bool:
    """Whether `one` is less than `other`.

    Raises:
        EvaluationError: the values have no order.
    """
    kind_of_one, kind_of_other = kind(one), kind(other)
    if kind_of_one in _NUMBERS and kind_of_other in _NUMBERS:
        if is_nan(one) or is_nan(other):
            raise EvaluationError("NaN values cannot be ordered")
        return bool(one < other)
    if kind_of_one != kind_of_other or kind_of_one not in _ORDERED:
        raise no_overload()
    if kind_of_one in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        return bool(one.nanos < other.nanos)
    if kind_of_one == "string":
        return bool(one.encode("utf-8", "surrogatepass") < other.encode("utf-8", "surrogatepass"))
    return bool(one < other)


def find(among: Mapping[Value, Value], key: Value) -> tuple[Value, ...]:
    """The value for a key in a tuple; empty if there is none.

    In Python True equals 1; in CEL it does not.
    """
    try:
        if key not in among:
            return ()
    except TypeError:
        return ()
    if isinstance(key, bool) or any(isinstance(other, bool) for other in among):
        return tuple(
            value
            for other, value in among.items()
            if other == key and isinstance(other, bool) == isinstance(key, bool)
        )
    return (among[key],)


def is_nan(value: Value) -> bool:
    """Whether it is NaN."""
    return isinstance(value, float) and math.isnan(value)
