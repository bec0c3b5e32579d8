"""Schemas and reference, from the types."""

import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, ClassVar

import pytest

from controller.api.crd import KINDS, Kind, definition
from controller.api.schema import schema_of
from controller.engine.files.checked import Rule, integer

_ROOT = Path(__file__).parents[4]


@dataclass(frozen=True, slots=True)
class _Part:
    """A part."""

    RULES: ClassVar = (Rule("self.size > 0", "size: write more than 0"),)

    size: Annotated[int, integer(0, 9)]
    """How large it is, in
    metres."""
    tags: tuple[str, ...] = ()
    """What is said of it."""


@dataclass(frozen=True, slots=True)
class _Bare:
    """A part that nothing is said of."""

    size: int


def test_the_schema_of_a_type_has_its_fields_rules_and_descriptions() -> None:
    assert schema_of(_Part) == {
        "type": "object",
        "properties": {
            "size": {
                "description": "How large it is, in metres.",
                "type": "integer",
                "format": "int32",
                "minimum": 0,
                "maximum": 9,
            },
            "tags": {
                "description": "What is said of it.",
                "type": "array",
                "items": {"type": "string"},
            },
        },
        "required": ["size"],
        "x-kubernetes-validations": [
            {"rule": "self.size > 0", "message": "size: write more than 0"}
        ],
    }


def test_a_field_without_a_docstring_is_a_mistake() -> None:
    with pytest.raises(TypeError, match=r"_Bare\.size has no docstring; write one"):
        schema_of(_Bare)


@pytest.mark.parametrize("kind", KINDS, ids=lambda kind: str(kind.name))
def test_every_field_has_a_description(kind: Kind) -> None:
    schema = definition(kind)["spec"]["versions"][0]["schema"]["openAPIV3Schema"]

    assert [path for path, member in _members(schema, "") if not member["description"]] == []


def test_generated_files_are_those_of_the_types() -> None:
    done = subprocess.run(
        [sys.executable, _ROOT / "deploy" / "generate.py", "--check"],
        capture_output=True,
        text=True,
        check=False,
        env={"PYTHONPATH": str(_ROOT)},
    )

    assert (done.returncode, done.stderr) == (0, "")


def _members(schema: Mapping[str, Any], path: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    for name, member in schema.get("properties", {}).items():
        yield f"{path}.{name}", member
        yield from _members(member, f"{path}.{name}")
        yield from _members(member.get("items", {}), f"{path}.{name}[]")
