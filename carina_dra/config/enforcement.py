"""What can keep a container within its share of a GPU: levels, detected and demanded as sets.

A share of a GPU has levels for its memory and levels for its cores, each published as a boolean
attribute. A class or a claim demands a set of levels, all of which must be in force. Levels are not
ordered: `mps` can be left by a process in the container and `watchdog` cannot, but `watchdog` acts
after the fact. docs/enforcement.md has what each level means.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal, TypeAlias

MemoryLevel: TypeAlias = Literal["kernel", "mps", "watchdog"]
"""What keeps a container within its memory: the kernel driver, the CUDA MPS server, or Carina,
which ends processes that exceed it."""
CoreLevel: TypeAlias = Literal["mps", "time-slice"]
"""What keeps a container within its cores: the CUDA MPS server; or the driver, which gives the
processes that compute on a GPU equal time slices, whatever the percentages."""
NONE: Final = "none"
"""The word for no level."""

MEMORY_ATTRIBUTES: Final[Mapping[MemoryLevel, str]] = {
    "kernel": "memoryEnforcementKernel",
    "mps": "memoryEnforcementMPS",
    "watchdog": "memoryEnforcementWatchdog",
}
"""The boolean attribute of each level of memory, the strongest level first."""
CORE_ATTRIBUTES: Final[Mapping[CoreLevel, str]] = {
    "mps": "coreEnforcementMPS",
    "time-slice": "coreEnforcementTimeSlice",
}
"""The boolean attribute of each level of cores, the strongest level first."""


@dataclass(frozen=True, slots=True)
class Levels:
    """The levels that are in force on a device."""

    memory: frozenset[MemoryLevel] = field(default_factory=frozenset)
    cores: frozenset[CoreLevel] = field(default_factory=frozenset)

    @property
    def strongest_memory(self) -> str:
        """The strongest level of memory; `none` if there is none."""
        return next((level for level in MEMORY_ATTRIBUTES if level in self.memory), NONE)

    @property
    def strongest_cores(self) -> str:
        """The strongest level of cores; `none` if there is none."""
        return next((level for level in CORE_ATTRIBUTES if level in self.cores), NONE)

    @property
    def attributes(self) -> Mapping[str, bool]:
        """Whether each level is in force, by the name of its attribute."""
        return {
            **{name: level in self.memory for level, name in MEMORY_ATTRIBUTES.items()},
            **{name: level in self.cores for level, name in CORE_ATTRIBUTES.items()},
        }

    def lacking(
        self, memory: Collection[MemoryLevel], cores: Collection[CoreLevel]
    ) -> Iterator["LackingLevel"]:
        """Yields the demanded levels that are not in force."""
        for level in memory_levels(memory):
            if level not in self.memory:
                yield LackingLevel("memory", level, MEMORY_ATTRIBUTES[level])
        for core_level in core_levels(cores):
            if core_level not in self.cores:
                yield LackingLevel("cores", core_level, CORE_ATTRIBUTES[core_level])


@dataclass(frozen=True, slots=True)
class LackingLevel:
    """A level that is demanded and not in force."""

    amount: Literal["memory", "cores"]
    """Of what; also the field of `enforcement` that demands it."""
    level: str
    attribute: str
    """The boolean attribute that devices with the level have."""


def memory_levels(levels: Iterable[MemoryLevel]) -> tuple[MemoryLevel, ...]:
    """Returns each of the levels once, the strongest first."""
    chosen = set(levels)
    return tuple(level for level in MEMORY_ATTRIBUTES if level in chosen)


def core_levels(levels: Iterable[CoreLevel]) -> tuple[CoreLevel, ...]:
    """Returns each of the levels once, the strongest first."""
    chosen = set(levels)
    return tuple(level for level in CORE_ATTRIBUTES if level in chosen)


def demanded(written: object, levels: Iterable[str]) -> tuple[str, ...]:
    """Reads a demand: `none`, one level, or a list of levels that must all be in force.

    Returns each level once, the strongest first.

    Raises:
        ValueError: it is none of these; says what can be written.
    """
    known = tuple(levels)
    found: object = written
    if isinstance(written, str):
        found = [] if written == NONE else [written]
    if not isinstance(found, list | tuple) or any(level not in known for level in found):
        raise ValueError(demand_remedy(known))
    return tuple(level for level in known if level in found)


def demand_remedy(levels: Iterable[str]) -> str:
    """Says what can be written as a demand of some of these levels, of which there are several."""
    known = tuple(levels)
    return (
        f"write {NONE} or {' or '.join(known)}, or a list such as [{known[0]}, {known[-1]}], all "
        "of whose levels are demanded"
    )
