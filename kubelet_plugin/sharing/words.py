"""How firmly a limit is enforced, in the words that all texts of the product use for it, and why
processes are ended."""

from collections.abc import Mapping
from typing import Final

_MEMORY: Final[Mapping[str, str]] = {
    "kernel": "enforced by the kernel",
    "mps": "enforced per process",
    "watchdog": "violators are ended within about a second, after the fact",
    "none": "not enforced",
}


_WHY_ENDED: Final[Mapping[str, str]] = {
    "memory": "the pods of the claim used more memory of it than the {given} MiB given",
    "mps": "it computed outside of the MPS daemon of the claim, which limits its memory",
}
_REMEDY: Final[Mapping[str, str]] = {
    "memory": "let the pods use less, or request more memory",
    "mps": "leave CUDA_MPS_PIPE_DIRECTORY as it is in the container",
}


def why_ended(why: str, given_mib: int) -> str:
    """Returns why carina-sharing ended a process, by its word for it."""
    known = _WHY_ENDED.get(why)
    return why if known is None else known.format(given=given_mib)


def remedy_of_end(why: str) -> str:
    """Returns what keeps further processes from being ended; empty if it is not known."""
    return _REMEDY.get(why, "")


def memory_in_words(level: str) -> str:
    """Returns what a level of memory enforcement means."""
    return _MEMORY.get(level, level)
