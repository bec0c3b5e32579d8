"""What a device says of itself: attributes, and the rule by which they are named.

A name without a domain is in the domain of the device's driver, so `model` and
`gpu.example.com/model` are the same attribute of a device of `gpu.example.com`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, TypeAlias, TypeVar

from carina_dra.resource.schema import Member, Struct

V = TypeVar("V")


@dataclass(frozen=True, slots=True)
class IntAttribute(Member):
    """A whole number."""

    value: int
    json_key: ClassVar[str] = "int"


@dataclass(frozen=True, slots=True)
class BoolAttribute(Member):
    """True or false."""

    value: bool
    json_key: ClassVar[str] = "bool"


@dataclass(frozen=True, slots=True)
class StringAttribute(Member):
    """A text of at most 64 bytes."""

    value: str
    json_key: ClassVar[str] = "string"


@dataclass(frozen=True, slots=True)
class VersionAttribute(Member):
    """A semantic version 2.0.0 of at most 64 bytes."""

    value: str
    json_key: ClassVar[str] = "version"


@dataclass(frozen=True, slots=True)
class IntsAttribute(Member):
    """Several whole numbers (gate DRAListTypeAttributes)."""

    values: tuple[int, ...]
    json_key: ClassVar[str] = "ints"


@dataclass(frozen=True, slots=True)
class BoolsAttribute(Member):
    """Several truth values (gate DRAListTypeAttributes)."""

    values: tuple[bool, ...]
    json_key: ClassVar[str] = "bools"


@dataclass(frozen=True, slots=True)
class StringsAttribute(Member):
    """Several texts (gate DRAListTypeAttributes)."""

    values: tuple[str, ...]
    json_key: ClassVar[str] = "strings"


@dataclass(frozen=True, slots=True)
class VersionsAttribute(Member):
    """Several versions (gate DRAListTypeAttributes)."""

    values: tuple[str, ...]
    json_key: ClassVar[str] = "versions"


@dataclass(frozen=True, slots=True)
class UnknownAttribute(Struct):
    """Of a kind that only a newer API knows. It satisfies no constraint."""


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
    """Finds what a device of `driver` has under the fully qualified `name`, None if nothing.

    The name in full comes first; then, in the driver's own domain, the name without it. As
    attributes, so capacities.
    """
    if name in named:
        return named[name]
    domain, _, bare = name.partition("/")
    return named.get(bare) if domain == driver else None
