"""Times, and what this machine does with next to nothing, to read other times as ratios of."""

import os
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Times:
    """Times of one operation, in milliseconds, sorted."""

    sorted_ms: tuple[float, ...]

    @classmethod
    def of(cls, operations: Iterable[Callable[[], object]]) -> "Times":
        """Measures each operation once."""
        return cls(tuple(sorted(_timed(operation) for operation in operations)))

    def at(self, quantile: float) -> float:
        """The time that so many of all do not exceed."""
        return self.sorted_ms[min(len(self.sorted_ms) - 1, int(quantile * len(self.sorted_ms)))]


def _timed(operation: Callable[[], object]) -> float:
    begun = time.perf_counter()
    operation()
    return (time.perf_counter() - begun) * 1000


def durable_write(folder: Path) -> None:
    """A small file, replaced durably: written, put on disk, renamed, its folder put on disk."""
    temporary = folder / "reference.tmp"
    descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.write(descriptor, b"x" * 1000)
    os.fsync(descriptor)
    os.close(descriptor)
    temporary.rename(folder / "reference")
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)
