"""The types know every field of the API, with its type there.

`data/api_fields/fields.json` lists them out of the Go types of k8s.io/api v0.37.0, written by the
program beside it: `spec.devices[].attributes{}.int` is `integer`. Objects that occur in several
places are listed once, and named there.
"""

import json
from collections.abc import Iterator, Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any, get_args, get_origin

import pytest

from carina_dra.quantity import Quantity
from carina_dra.resource import Condition, JsonObject, NodeSelector, ObjectMeta
from carina_dra.resource.schema import (
    Known,
    KnownMember,
    KnownSpread,
    KnownUnion,
    Member,
    Struct,
    alternatives,
    known_members,
    union_members,
)
from tests.samples.resources import KINDS

FIELDS: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "api_fields" / "fields.json").read_text()
)
ROOTS: dict[str, type[Struct]] = KINDS | {
    "Condition": Condition,
    "NodeSelector": NodeSelector,
    "ObjectMeta": ObjectMeta,
}
LEAVES = {
    str: "string",
    int: "integer",
    bool: "boolean",
    datetime: "time",
    Quantity: "quantity",
    JsonObject: "object",
}
LEFT_OUT = ("managedFields", "selfLink", "deletionGracePeriodSeconds")
"""Of ObjectMeta: see metadata.py."""


def leaves(kind: Any, path: str) -> Iterator[tuple[str, str]]:
    """The paths below a type of ours, with the types at their ends."""
    names = [name for name, root in ROOTS.items() if root is kind]
    first, *_ = alternatives(kind)
    if kind in LEAVES or (names and path):
        yield path, LEAVES.get(kind) or names[0]
    elif members := union_members(kind):
        yield from of_union(members, path)
    elif first is not kind:  # beside it None, or what only a newer API knows
        yield from leaves(first, path)
    elif get_origin(kind) is tuple:
        yield from leaves(get_args(kind)[0], path + "[]")
    elif get_origin(kind) is Mapping:
        yield from leaves(get_args(kind)[1], path + "{}")
    elif issubclass(kind, Enum):
        yield path, "string"
    else:
        for known in known_members(kind):
            yield from of_member(known, path)


def of_member(known: Known, path: str) -> Iterator[tuple[str, str]]:
    match known:
        case KnownMember(name=name, kind=kind):
            yield from leaves(kind, f"{path}.{name}")
        case KnownUnion(alternatives=members):
            yield from of_union(members, path)
        case KnownSpread(how=how):
            for key, kind in how.members.items():
                yield from leaves(kind, f"{path}.{key}")


def of_union(members: Mapping[str, type[Member]], path: str) -> Iterator[tuple[str, str]]:
    for key, member in members.items():
        match known_members(member):
            case (KnownMember(kind=kind),):
                yield from leaves(kind, f"{path}.{key}")
            case _:
                yield f"{path}.{key}", "boolean"


@pytest.mark.parametrize("root", ROOTS)
def test_types_know_the_fields_of_the_api(root: str) -> None:
    ours = {path.removeprefix("."): kind for path, kind in leaves(ROOTS[root], "")}
    theirs = {
        path: kind
        for path, kind in FIELDS[root].items()
        if root != "ObjectMeta" or not path.startswith(LEFT_OUT)
    }
    assert ours == theirs
