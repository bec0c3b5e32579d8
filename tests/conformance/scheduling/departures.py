"""The vectors of which Carina does otherwise, by file name, each with the rule that it follows."""

from collections.abc import Mapping
from typing import Final

_NOBODY_ASKS: Final = (
    "the rest of a stale gang keeps its devices while nobody who waits can use them: an eviction "
    "that frees nothing for anybody helps nobody"
)
DEPARTURES: Final[Mapping[str, str]] = {
    "allocate-020.json": (
        "a pod starts now on a GPU that is free, rather than wait for a share of one that another "
        "leaves"
    ),
    "integration-reclaim-003.json": (
        "one pod goes for good rather than two of the same priority that are younger: fewer lose "
        "their work, and their queue is left with as much"
    ),
    "integration-reclaim-022.json": (
        "a queue below its quota gets it back from one above: the expectation works around a loop "
        "in the source's own allocation, as its name says"
    ),
    "integration-reclaim-024.json": (
        "a queue below its fair share gets it back from the one that has more than its own, "
        "whatever their priorities: weight 0 entitles to nothing above the quota"
    ),
    "integration-reclaim-038.json": (
        "a group without devices, of a queue that names no cpu or memory, gives its memory to one "
        "that asks for devices within its quota: otherwise it keeps devices from their owner"
    ),
    "integration-stalegangeviction-001.json": _NOBODY_ASKS,
    "integration-stalegangeviction-002.json": _NOBODY_ASKS,
    "stalegangeviction-003.json": _NOBODY_ASKS,
    "stalegangeviction-005.json": _NOBODY_ASKS,
    "stalegangeviction-010.json": _NOBODY_ASKS,
    "stalegangeviction-011.json": _NOBODY_ASKS,
}
