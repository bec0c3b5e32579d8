"""Every field of a type, by its path in JSON."""

from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from typing import Any, get_args, get_origin

from carina_dra.quantity import Quantity
from carina_dra.resource import Condition, JsonObject, NodeSelector, ObjectMeta
from carina_dra.resource.schema import (
    Known,
    KnownMember,
    KnownSpread,
    KnownUnion,
    Struct,
    UnionMember,
    alternatives,
    known_members,
    union_members,
)
from tests.samples.resources import KINDS

ROOTS: dict[str, type[Struct]] = KINDS | {
    "Condition": Condition,
    "NodeSelector": NodeSelector,
    "ObjectMeta": ObjectMeta,
}
"""Listed each by itself, and not entered where others have them."""
LEAVES = {
    str: "string",
    int: "integer",
    bool: "boolean",
    datetime: "time",
    Quantity: "quantity",
    JsonObject: "object",
}


def walk(kind: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """The paths of a type and below it, each with our type there: `spec.devices[]` is Device."""
    first, *_ = alternatives(kind)
    if kind in LEAVES:
        yield path, kind
    elif members := union_members(kind):
        yield from _of_union(members, path)
    elif first is not kind:  # beside it None, or what only a newer API knows
        yield from walk(first, path)
    elif get_origin(kind) is tuple:
        yield from walk(get_args(kind)[0], path + "[]")
    elif get_origin(kind) is Mapping:
        yield from walk(get_args(kind)[1], path + "{}")
    else:
        yield path, kind
        if not (path and kind in ROOTS.values()) and not issubclass(kind, Enum):
            for known in known_members(kind):
                yield from _of_member(known, path)


def _of_member(known: Known, path: str) -> Iterator[tuple[str, Any]]:
    match known:
        case KnownMember(name=name, kind=kind):
            yield from walk(kind, _below(path, name))
        case KnownUnion(alternatives=members):
            yield from _of_union(members, path)
        case KnownSpread(how=how):
            for name, kind in how.members.items():
                yield from walk(kind, _below(path, name))


def _of_union(members: Mapping[str, type[UnionMember]], path: str) -> Iterator[tuple[str, Any]]:
    for name, member in members.items():
        match known_members(member):
            case (KnownMember(kind=kind),):
                yield from walk(kind, _below(path, name))
            case _:
                yield _below(path, name), bool


def _below(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name
