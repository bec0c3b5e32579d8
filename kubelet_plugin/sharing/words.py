"""How firmly a limit is enforced, in the words that all texts of the product use for it."""

from collections.abc import Mapping
from typing import Final

_MEMORY: Final[Mapping[str, str]] = {
    "kernel": "enforced by the kernel",
    "mps": "enforced per process",
    "watchdog": "violators are ended within about a second, after the fact",
    "none": "not enforced",
}


def memory_in_words(level: str) -> str:
    """Returns what a level of memory enforcement means."""
    return _MEMORY.get(level, level)
