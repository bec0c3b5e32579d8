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
_YEARS_1_TO_9999: Final = range(-62135596800 * 10**9, 253402300800 * 10**9)
"""In nanoseconds since 1970."""
_SHOWN: Final = 80
"""The maximal number of characters of a value in an error."""


class Uint(int):
    """An unsigned integer of 64 bits."""

    __slots__ = ()


class DomainMap(dict[str, Value]):
    """A map of maps in which an absent key has an empty map as its value."""

    __slots__ = ()

    def __missing__(self, key: str) -> Mapping[str, Value]:
        return EMPTY_MAP


EMPTY_MAP: Final[dict[str, Value]] = {}


class BoolMap(dict[bool, Value]):
    """A map whose keys are booleans. In Python they equal 0 and 1; in CEL they do not."""

    __slots__ = ()


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

    def __post_init__(self) -> None:
        if self.nanos not in _YEARS_1_TO_9999:
            raise EvaluationError("timestamp overflow")


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
    BoolMap: "map",
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
_KEYS: Final = frozenset({"string", "int", "uint", "bool", "double"})
_SIMPLE: Final = frozenset({bool, int, Uint, float, str, bytes})
"""Types that Python compares as CEL does, if both values are of the same one."""
_ALWAYS_ORDERED: Final = _SIMPLE - {float}


def kind(value: Value) -> str:
    """The kind of a value, as the name of its type."""
    return _KINDS.get(type(value), "kubernetes.DRADevice")


def no_overload() -> EvaluationError:
    """The operation does not support these values."""
    return EvaluationError("no such overload")


def shown(value: Value) -> str:
    """A value in an error: its beginning, or the kind of a collection."""
    if isinstance(value, str | bytes):
        return f"{value[:_SHOWN]!r}{'' if len(value) <= _SHOWN else '...'}"
    return str(value) if kind(value) in _KEYS else kind(value)


def equal(left: Value, right: Value) -> bool:
    """Whether two values are equal; numbers of different kinds can be equal.

    Raises:
        EvaluationError: the first is of a kind that can be compared only with the same kind.
    """
    if type(left) is type(right) and type(left) in _SIMPLE:
        return bool(left == right)
    kind_of_left, kind_of_right = kind(left), kind(right)
    if kind_of_left != kind_of_right:
        if kind_of_left in _STRICT and right is not None:
            raise no_overload()
        if kind_of_left not in _NUMBERS or kind_of_right not in _NUMBERS:
            return False
        left, right = _comparable(left, right)
        return bool(left == right)
    match kind_of_left:
        case "list":
            return len(left) == len(right) and all(map(equal, left, right))
        case "map":
            return len(left) == len(right) and all(
                (found := find(right, key)) and equal(value, found[0])
                for key, value in left.items()
            )
        case "optional_type":
            return len(left.values) == len(right.values) and all(
                map(equal, left.values, right.values)
            )
        case "kubernetes.Semver":
            return bool(left.precedence == right.precedence)
        case _:
            return bool(left == right)


def is_same(left: Value, right: Value) -> bool:
    """Whether two values are equal; values that cannot be compared are not."""
    try:
        return equal(left, right)
    except EvaluationError:
        return False


def less(left: Value, right: Value) -> bool:
    """Whether `left` is less than `right`.

    Raises:
        EvaluationError: the values have no order.
    """
    if type(left) is type(right) and type(left) in _ALWAYS_ORDERED:
        return bool(left < right)
    kind_of_left, kind_of_right = kind(left), kind(right)
    if kind_of_left in _NUMBERS and kind_of_right in _NUMBERS:
        if is_nan(left) or is_nan(right):
            raise EvaluationError("NaN values cannot be ordered")
        left, right = _comparable(left, right)
        return bool(left < right)
    if kind_of_left != kind_of_right or kind_of_left not in _ORDERED:
        raise no_overload()
    if kind_of_left in ("google.protobuf.Duration", "google.protobuf.Timestamp"):
        return bool(left.nanos < right.nanos)
    return bool(left < right)


def _comparable(left: Value, right: Value) -> tuple[Value, Value]:
    """Two numbers; an integer is compared with a double as a double, as in Go."""
    if isinstance(left, float) or isinstance(right, float):
        return float(left), float(right)
    return left, right


def find(among: Mapping[Value, Value], key: Value) -> tuple[Value, ...]:
    """The value for a key in a tuple; empty if there is none.

    Other values than strings and numbers are never looked up: to hash a list takes time
    exponential in the depth of a structure that shares parts.
    """
    if kind(key) not in _KEYS or isinstance(key, bool) is not isinstance(among, BoolMap):
        return ()
    return (among[key],) if key in among else ()


def put(entries: dict[Value, Value], key: Value, value: Value) -> None:
    """Adds an entry to a map that is being built.

    Raises:
        EvaluationError: maps do not support the key, or not together with the others.
    """
    if kind(key) not in _KEYS:
        raise EvaluationError(f"unsupported key type: {kind(key)}")
    if isinstance(key, bool) is not _has_bools(entries, otherwise=isinstance(key, bool)):
        raise EvaluationError("unsupported key type: bool beside others")
    entries[key] = value


def built(entries: dict[Value, Value]) -> Value:
    """The map with these entries."""
    return BoolMap(entries) if _has_bools(entries, otherwise=False) else entries


def _has_bools(entries: dict[Value, Value], *, otherwise: bool) -> bool:
    for key in entries:
        return isinstance(key, bool)
    return otherwise


def is_nan(value: Value) -> bool:
    """Whether it is NaN."""
    return isinstance(value, float) and math.isnan(value)
