"""The vectors of which Carina does otherwise, by file name, each with the rule that it follows."""

from collections.abc import Mapping
from typing import Final

DEPARTURES: Final[Mapping[str, str]] = {
    "allocate-020.json": (
        "a pod starts now on a GPU that is free, rather than wait for a share of one that another "
        "leaves"
    ),
}
