"""The vectors of which Carina does otherwise, by file name, each with the rule that it follows."""

from collections.abc import Mapping
from typing import Final

DEPARTURES: Final[Mapping[str, str]] = {
    "allocate-020.json": (
        "a pod starts now on a GPU that is free, rather than wait for a share of one that another "
        "leaves"
    ),
    "integration-reclaim-022.json": (
        "a queue below its quota gets it back from one above: the expectation works around a loop "
        "in the source's own allocation, as its name says"
    ),
    "integration-reclaim-024.json": (
        "a queue below its fair share gets it back from the one that has more than its own, "
        "whatever their priorities: weight 0 entitles to nothing above the quota"
    ),
}
