"""The vectors of which Carina does otherwise, by file name, each with the rule that it follows."""

from collections.abc import Mapping
from typing import Final

DEPARTURES: Final[Mapping[str, str]] = {}
