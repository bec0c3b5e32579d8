"""The tables of the package give the names of Go for ours: all of them, and no others.

`data/api_fields/type_names.json` has the names of the Go types of k8s.io/api v0.37.0 by their
paths in JSON, written by the program beside it.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import carina_dra.resource
from carina_dra.resource.schema import (
    KnownMember,
    KnownSpread,
    KnownUnion,
    Struct,
    UnionMember,
    known_members,
)
from tests.unit.carina_dra.resource.walk import LEAVES, ROOTS, walk

GO_NAMES: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "api_fields" / "type_names.json").read_text()
)


def table(header: str) -> dict[str, str]:
    """The rows below a header in the package's docstring."""
    _, _, rest = (carina_dra.resource.__doc__ or "").partition(header)
    rows = rest.strip("\n").partition("\n\n")[0]
    return dict(row.split(maxsplit=1) for row in rows.splitlines())


def types() -> Iterator[tuple[type, str]]:
    """Our types, each with the name of Go's at the same path."""
    for name, root in ROOTS.items():
        for path, kind in walk(root):
            if kind not in LEAVES:
                yield kind, GO_NAMES[name][path]


def structs() -> set[type[Struct]]:
    return {kind for kind, _ in types() if issubclass(kind, Struct)}


def test_types_with_another_name_in_go_are_listed() -> None:
    listed = table("    type                       in Go\n")
    assert listed == {ours.__name__: go for ours, go in types() if ours.__name__ != go}


def test_a_type_of_ours_is_one_type_in_go() -> None:
    pairs = set(types())
    assert len({ours for ours, _ in pairs}) == len(pairs) == len({go for _, go in pairs})


def test_fields_that_are_several_members_are_listed() -> None:
    several = {}
    for ours in structs():
        for known in known_members(ours):
            match known:
                case KnownUnion(field=field, alternatives=members):
                    several[f"{ours.__name__}.{field}"] = ", ".join(members)
                case KnownSpread(field=field, how=how):
                    several[f"{ours.__name__}.{field}"] = ", ".join(how.members)
                case KnownMember():
                    pass
    assert table("    field                              in JSON\n") == several


def test_types_of_single_members_are_listed() -> None:
    listed = table("    alternative                in JSON\n")
    assert listed == {
        member.__name__: member.json_key
        for member in vars(carina_dra.resource).values()
        if isinstance(member, type) and issubclass(member, UnionMember)
    }
