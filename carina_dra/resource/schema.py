"""How the frozen types of this package describe their JSON.

The fields of a type describe it. A field's name in JSON is its own in camelCase, or the one that
`json_name` gives; a field with a default may be absent. A union of `UnionMember` types stands for
several members of a JSON object of which at most one may be present. Content that only a newer API
knows is kept in `Struct.unknown` and `Unrecognized`.
"""

import re
import types
from collections.abc import Mapping
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cache
from typing import (
    Any,
    ClassVar,
    Final,
    Protocol,
    Union,
    get_args,
    get_origin,
    get_type_hints,
)

JsonObject = Mapping[str, Any]
"""A JSON object that is passed on unchanged."""

EMPTY: Final[JsonObject] = {}
"""Shared by all values. It is read-only by type alone, since a mappingproxy cannot be pickled."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object of the API. The fields of subclasses are the members that they know."""

    unknown: JsonObject = field(default_factory=lambda: EMPTY, repr=False, hash=False, kw_only=True)
    """Members that the type does not know. They are written as they were read."""
    NOT_READ: ClassVar[frozenset[str]] = frozenset()
    """Members that the API has but the type does not: they are in `unknown`."""
    SHARED: ClassVar[bool] = False
    """Whether many objects of a cluster have equal values: reading makes one value for them all."""


@dataclass(frozen=True, slots=True)
class UnionMember(Struct):
    """One alternative of a union: the member `json_key` of the JSON object chooses it.

    The value of that member is the one field of the alternative, or `true` for an alternative
    without a field.
    """

    json_key: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Unrecognized:
    """A word of an enumeration that only a newer API knows.

    The enumeration documents how a reader must treat it.
    """

    word: str


class Spread(Protocol):
    """How a value of one field is converted to and from several members of a JSON object."""

    members: Mapping[str, type]
    """The names and types of the members."""

    def join(self, present: Mapping[str, Any]) -> object:
        """The value for the members that are present.

        Raises:
            errors.BadValueError: the members contradict each other.
        """

    def split(self, value: Any) -> Mapping[str, Any]:
        """The members for a value."""


def json_name(name: str) -> dict[str, Any]:
    """Field metadata: the name in JSON, if it is not the field's name in camelCase."""
    return {"json": name}


def spread(how: Spread) -> dict[str, Any]:
    """Field metadata: the value stands for several members of the JSON object."""
    return {"spread": how}


@dataclass(frozen=True, slots=True)
class KnownMember:
    """A field that stands for one member of the JSON object."""

    field: str
    name: str
    """The name in JSON."""
    kind: Any
    required: bool
    default: object
    """The value if the member is absent."""


@dataclass(frozen=True, slots=True)
class KnownUnion:
    """A field that stands for at most one of several members."""

    field: str
    alternatives: Mapping[str, type[UnionMember]]
    """By the names of their members in JSON."""


@dataclass(frozen=True, slots=True)
class KnownSpread:
    """A field that stands for several members together."""

    field: str
    how: Spread


Known = KnownMember | KnownUnion | KnownSpread


def known_members(cls: Any) -> tuple[Known, ...]:
    """The fields of a type with their JSON, in order."""
    return _known_members(cls)  # apart from the cache, which is typed for instances, not classes


@cache
def _known_members(cls: Any) -> tuple[Known, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _known(member, hints[member.name]) for member in fields(cls) if member.name != "unknown"
    )


def header(cls: Any) -> dict[str, str]:
    """The apiVersion and kind of a top-level object; empty for other types."""
    version, kind = getattr(cls, "API_VERSION", None), getattr(cls, "KIND", None)
    return {"apiVersion": version, "kind": kind} if version and kind else {}


def alternatives(kind: Any) -> tuple[Any, ...]:
    """The types of a union, without None; for any other type the type itself."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(member for member in get_args(kind) if member is not types.NoneType)
    return (kind,)


def union_members(kind: Any) -> dict[str, type[UnionMember]]:
    """The `UnionMember` types of a union, by the names of their members in JSON."""
    return {member.json_key: member for member in alternatives(kind) if _is_member(member)}


def _is_member(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, UnionMember)


def _known(known: Field[Any], kind: Any) -> Known:
    if "spread" in known.metadata:
        return KnownSpread(known.name, known.metadata["spread"])
    if members := union_members(kind):
        return KnownUnion(known.name, members)
    factory = known.default_factory
    return KnownMember(
        field=known.name,
        name=known.metadata.get("json") or camel_case(known.name),
        kind=kind,
        required=known.default is MISSING and factory is MISSING,
        default=known.default if factory is MISSING else factory(),
    )


def camel_case(name: str) -> str:
    """Returns the name of a field in JSON."""
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), name)
