"""The types know every field of the API, with its type there.

`data/api_fields/fields.json` lists them out of the Go types of k8s.io/api v0.37.0, written by the
program beside it: `spec.devices[].attributes{}.int` is `integer`. Objects that occur in several
places are listed once, and named there.
"""

import json
from enum import Enum
from pathlib import Path
from typing import Any

import pytest

from tests.unit.carina_dra.resource.walk import LEAVES, ROOTS, walk

FIELDS: dict[str, dict[str, str]] = json.loads(
    (Path(__file__).parents[1] / "data" / "api_fields" / "fields.json").read_text()
)
LEFT_OUT = ("managedFields", "selfLink", "deletionGracePeriodSeconds")
"""Of ObjectMeta: see metadata.py."""
NAMES = {root: name for name, root in ROOTS.items()}


def json_type(kind: Any) -> str | None:
    """What fields.json calls a type; None for a struct, of which it lists the fields alone."""
    if kind in LEAVES:
        return LEAVES[kind]
    return "string" if issubclass(kind, Enum) else NAMES.get(kind)


@pytest.mark.parametrize("root", ROOTS)
def test_types_know_the_fields_of_the_api(root: str) -> None:
    ours = {path: name for path, kind in walk(ROOTS[root]) if path and (name := json_type(kind))}
    theirs = {
        path: kind
        for path, kind in FIELDS[root].items()
        if root != "ObjectMeta" or not path.startswith(LEFT_OUT)
    }
    assert ours == theirs
