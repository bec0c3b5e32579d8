"""Installs the simulated library where pynvml keeps the loaded one.

Whatever pynvml caches of the former library is cleared: the library, the function pointers and the
count of nvmlInit calls.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml

# Importing these modules registers the C functions that they define.
from simulation.nvml import (
    compute_instance_functions,
    device_functions,
    event_functions,
    health_functions,
    link_functions,
    memory_limit_functions,
    mig_functions,
)
from simulation.nvml.library import SimulatedLibrary

__all__ = ["install", "installed", "uninstall"]

_ = (
    compute_instance_functions,
    device_functions,
    event_functions,
    health_functions,
    link_functions,
    memory_limit_functions,
    mig_functions,
)


def install(directory: Path) -> SimulatedLibrary:
    """Makes pynvml in this process use the simulated node in a directory."""
    uninstall()
    library = SimulatedLibrary(directory)
    pynvml.nvmlLib = library
    return library


def uninstall() -> None:
    """Makes pynvml load the real library again."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  (its cache of a library)
    pynvml._nvmlLib_refcount = 0  # noqa: SLF001


@contextmanager
def installed(directory: Path) -> Iterator[SimulatedLibrary]:
    """`install` for the length of a block."""
    try:
        yield install(directory)
    finally:
        uninstall()
