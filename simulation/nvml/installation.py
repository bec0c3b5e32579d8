"""Where the simulation is put in: the place where pynvml keeps the loaded library.

Everything that pynvml remembers of a library is forgotten with it: the library, the function
pointers and the count of nvmlInit calls.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pynvml

# Each defines the C functions of one area; importing is what registers them.
from simulation.nvml import (
    compute_instance_functions,
    device_functions,
    event_functions,
    link_functions,
    mig_functions,
)
from simulation.nvml.library import SimulatedLibrary

__all__ = ["install", "installed", "uninstall"]

_ = (
    compute_instance_functions,
    device_functions,
    event_functions,
    link_functions,
    mig_functions,
)


def install(directory: Path) -> SimulatedLibrary:
    """Makes pynvml, in this process, talk to the simulated node in a directory."""
    uninstall()
    library = SimulatedLibrary(directory)
    pynvml.nvmlLib = library
    return library


def uninstall() -> None:
    """Makes pynvml look for the real library again."""
    pynvml.nvmlLib = None
    pynvml._nvmlGetFunctionPointer_cache.clear()  # noqa: SLF001  (what it remembers of a library)
    pynvml._nvmlLib_refcount = 0  # noqa: SLF001


@contextmanager
def installed(directory: Path) -> Iterator[SimulatedLibrary]:
    """`install` for the length of a block."""
    try:
        yield install(directory)
    finally:
        uninstall()
