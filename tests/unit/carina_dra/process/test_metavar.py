"""What `--help` shows for a value, by its type."""

from enum import StrEnum
from fractions import Fraction
from pathlib import Path
from typing import Annotated, Any, Literal, Optional

import pytest

from carina_dra.process.metavar import Metavar, metavar


class Order(StrEnum):
    NONE = "none"
    SPREAD = "spread"


ADDRESS = Annotated[str, "other metadata", Metavar("HOST:PORT")]


@pytest.mark.parametrize(
    ("annotation", "shown"),
    [
        (str, "TEXT"),
        (int, "INTEGER"),
        (float, "NUMBER"),
        (bool, "true|false"),
        (Path, "PATH"),
        (Fraction, "FRACTION"),
        (Order, "none|spread"),
        (Literal["json", "text"], "json|text"),
        (Path | None, "PATH"),
        (Optional[Path], "PATH"),  # noqa: UP045 - the older spelling is another type
        (int | Literal["off"], "INTEGER|off"),
        (frozenset[Order] | None, "none|spread,..."),
        (tuple[Path, ...], "PATH,..."),
        (ADDRESS, "HOST:PORT"),
        (ADDRESS | None, "HOST:PORT"),
        (Annotated[Path, "other metadata"] | None, "PATH"),
    ],
)
def test_the_metavar_is_that_of_the_type(annotation: Any, shown: str) -> None:
    assert metavar(annotation) == shown


def test_metadata_of_a_field_counts() -> None:
    assert metavar(tuple[str, ...], ["other metadata", Metavar("ACTION,...")]) == "ACTION,..."
