"""The values that expressions work with, how they compare, and what their kinds are called.

Numbers, texts and truth values are Python's own; a list is a tuple, a map a dict. What Python has
no type for is here.
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
    """A map of maps in which looking up what is not there gives an empty map."""

    __slots__ = ()

    def __missing__(self, key: str) -> Mapping[str, Value]:
        return EMPTY_MAP


EMPTY_MAP: Final[dict[str, Value]] = {}


@dataclass(frozen=True, slots=True)
class Optional:
    """A value, or none."""

    values: tuple[Value, ...] = ()


NONE: Final = Optional()


@dataclass(frozen=True, slots=True)
class Duration:
    """A span of time."""

    nanos: int


@dataclass(frozen=True, slots=True)
class Timestamp:
    """A moment, in nanoseconds since 1970 in UTC."""

    nanos: int


@dataclass(frozen=True, slots=True)
class TypeValue:
    """What `type(x)` gives."""

    name: str


@dataclass(frozen=True, slots=True)
class Ip:
    """An IP address."""

    address: IPv4Address | IPv6Address


@dataclass(frozen=True, slots=True)
class Cidr:
    """An address with the length of its network's prefix."""

    address: IPv4Address | IPv6Address
    prefix: int

    @property
    def network(self) -> IPv4Network | IPv6Network:
        """The network that the address is in."""
        if isinstance(self.address, IPv4Address):
            return IPv4Network((self.address, self.prefix), strict=False)
        return IPv6Network((self.address, self.prefix), strict=False)


@dataclass(frozen=True, slots=True)
class Url:
    """A URL, in its parts."""

    scheme: str
    host: str
    """With the port."""
    path: str
    query: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class NamedFormat:
    """A format of names that Kubernetes knows."""

    name: str


@dataclass(frozen=True, slots=True)
class Semver:
    """A semantic version 2.0.0, ordered by precedence: build metadata does not count."""

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
        """What versions are ordered by."""
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
"""Kinds that can be compared with their like only."""


def kind(value: Value) -> str:
    """What kind of value it is; `device` is an object of its own."""
    return _KINDS.get(type(value), "kubernetes.DRADevice")


def no_overload() -> EvaluationError:
    """There is no such operation on such values."""
    return EvaluationError("no such overload")


def equal(one: Value, other: Value) -> bool:
    """Whether two values are the same: numbers by what they are, whatever their kinds.

    Raises:
        EvaluationError: the first is of a kind that is compared with its like only.
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
    """Whether two values are the same; those that cannot be compared are not."""
    try:
        return equal(one, other)
    except EvaluationError:
        return False


def less(one: Value, other: Value) -> bool:
    """Whether the one comes before the other.

    Raises:
        EvaluationError: they have no order.
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
    """The value under a key, or nothing.

    To Python true is 1; to this language it is not.
    """
    try:
        if key not in among:
            return ()
    except TypeError:
        return ()
    if isinstance(key, bool) or any(isinstance(each, bool) for each in among):
        return tuple(
            value
            for each, value in among.items()
            if each == key and isinstance(each, bool) == isinstance(key, bool)
        )
    return (among[key],)


def is_nan(value: Value) -> bool:
    """Whether it is the number that equals nothing."""
    return isinstance(value, float) and math.isnan(value)
