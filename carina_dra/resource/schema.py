"""How the frozen types of this package say what their JSON looks like.

A type says it with its fields alone: a field's JSON name is its own in camelCase, or what
`json_name` gives it; a field with a default may be absent. A union of `Member` types is what the
API writes as several members of one object of which at most one is there. What a newer API may have
and we do not know is kept: `Struct.unknown`, `Unrecognized`.
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
"""A JSON object that is passed on as it is."""

EMPTY: Final[JsonObject] = {}
"""Shared by all. Its type makes it read-only; a read-only view of it could not be pickled."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object of the API. Subclasses say which members they know."""

    unknown: JsonObject = field(default_factory=lambda: EMPTY, repr=False, hash=False, kw_only=True)
    """The members that the type does not know; they are written again as they were."""


@dataclass(frozen=True, slots=True)
class Member(Struct):
    """One alternative of a union, chosen by the member `json_key` of the JSON object.

    That member's value is the alternative's one field; an alternative without a field is a plain
    `true`.
    """

    json_key: ClassVar[str]


@dataclass(frozen=True, slots=True)
class Unrecognized:
    """A word of an enumeration that only a newer API knows.

    What it means for a reader who does not know it is said where the enumeration is.
    """

    word: str


class Spread(Protocol):
    """How one value of ours is several members of a JSON object."""

    members: Mapping[str, type]
    """Their names and types."""

    def join(self, present: Mapping[str, Any]) -> object:
        """Gives the value; `present` are those of the members that are there.

        What contradicts the API raises `errors.BadValueError`.
        """

    def split(self, value: Any) -> Mapping[str, Any]:
        """Gives the members."""


def json_name(name: str) -> dict[str, Any]:
    """Field metadata: its JSON name, where that is not the camelCase of its own."""
    return {"json": name}


def spread(how: Spread) -> dict[str, Any]:
    """Field metadata: the value is several members of the JSON object."""
    return {"spread": how}


@dataclass(frozen=True, slots=True)
class KnownMember:
    """A field that is one member of the JSON object."""

    field: str
    name: str
    """In JSON."""
    kind: Any
    required: bool
    default: object
    """What an absent member means."""


@dataclass(frozen=True, slots=True)
class KnownUnion:
    """A field that is at most one of several members."""

    field: str
    alternatives: Mapping[str, type[Member]]
    """By their members' names."""


@dataclass(frozen=True, slots=True)
class KnownSpread:
    """A field that is several members."""

    field: str
    how: Spread


Known = KnownMember | KnownUnion | KnownSpread


def known_members(cls: Any) -> tuple[Known, ...]:
    """What a type knows of its JSON object, in the order of its fields."""
    return _known_members(cls)  # apart from the cache, which is typed for instances, not classes


@cache
def _known_members(cls: Any) -> tuple[Known, ...]:
    hints = get_type_hints(cls)
    return tuple(
        _known(member, hints[member.name]) for member in fields(cls) if member.name != "unknown"
    )


def header(cls: Any) -> dict[str, str]:
    """Gives what a top-level object says of itself: apiVersion and kind. Others say nothing."""
    version, kind = getattr(cls, "API_VERSION", None), getattr(cls, "KIND", None)
    return {"apiVersion": version, "kind": kind} if version and kind else {}


def alternatives(kind: Any) -> tuple[Any, ...]:
    """Gives the types of a union, without None; of anything else the type itself."""
    if get_origin(kind) in (Union, types.UnionType):
        return tuple(each for each in get_args(kind) if each is not types.NoneType)
    return (kind,)


def union_members(kind: Any) -> dict[str, type[Member]]:
    """Gives the `Member` types of a union by their members' names."""
    return {each.json_key: each for each in alternatives(kind) if _is_member(each)}


def _is_member(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Member)


def _known(each: Field[Any], kind: Any) -> Known:
    if "spread" in each.metadata:
        return KnownSpread(each.name, each.metadata["spread"])
    if members := union_members(kind):
        return KnownUnion(each.name, members)
    factory = each.default_factory
    return KnownMember(
        field=each.name,
        name=each.metadata.get("json") or _camel_case(each.name),
        kind=kind,
        required=each.default is MISSING and factory is MISSING,
        default=each.default if factory is MISSING else factory(),
    )


def _camel_case(name: str) -> str:
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), name)
