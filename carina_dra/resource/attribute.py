"""Attributes of devices, and how they are named.

A name without a domain is in the domain of the device's driver: for a device of the driver
`gpu.example.com`, `model` and `gpu.example.com/model` are the same attribute.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

from carina_dra.resource.schema import Struct, UnionMember

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class IntAttribute(UnionMember):
    """An integer."""

    value: int
    json_key: ClassVar[str] = "int"


@dataclass(frozen=True, slots=True)
class BoolAttribute(UnionMember):
    """True or false."""

    value: bool
    json_key: ClassVar[str] = "bool"


@dataclass(frozen=True, slots=True)
class StringAttribute(UnionMember):
    """A string of at most 64 bytes."""

    value: str
    json_key: ClassVar[str] = "string"


@dataclass(frozen=True, slots=True)
class VersionAttribute(UnionMember):
    """A semantic version 2.0.0 of at most 64 bytes."""

    value: str
    json_key: ClassVar[str] = "version"


@dataclass(frozen=True, slots=True)
class IntsAttribute(UnionMember):
    """A list of integers (feature gate DRAListTypeAttributes)."""

    values: tuple[int, ...]
    json_key: ClassVar[str] = "ints"


@dataclass(frozen=True, slots=True)
class BoolsAttribute(UnionMember):
    """A list of booleans (feature gate DRAListTypeAttributes)."""

    values: tuple[bool, ...]
    json_key: ClassVar[str] = "bools"


@dataclass(frozen=True, slots=True)
class StringsAttribute(UnionMember):
    """A list of strings (feature gate DRAListTypeAttributes)."""

    values: tuple[str, ...]
    json_key: ClassVar[str] = "strings"


@dataclass(frozen=True, slots=True)
class VersionsAttribute(UnionMember):
    """A list of versions (feature gate DRAListTypeAttributes)."""

    values: tuple[str, ...]
    json_key: ClassVar[str] = "versions"


@dataclass(frozen=True, slots=True)
class UnknownAttribute(Struct):
    """An attribute of a kind that only a newer API knows. It satisfies no constraint."""


DeviceAttribute: TypeAlias = (
    IntAttribute
    | BoolAttribute
    | StringAttribute
    | VersionAttribute
    | IntsAttribute
    | BoolsAttribute
    | StringsAttribute
    | VersionsAttribute
    | UnknownAttribute
)


def lookup(named: Mapping[str, V], name: str, driver: str) -> V | None:
    """The attribute or capacity of a device of `driver` with a fully qualified name, or None.

    The qualified name has precedence over the name without the driver's domain.
    """
    if name in named:
        return named[name]
    domain, _, bare = name.partition("/")
    return named.get(bare) if domain == driver else None
