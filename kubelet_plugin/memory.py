"""Trimming of memory after the start."""

import ctypes
import gc


def trim_memory() -> None:
    """Collects garbage, exempts the remaining objects from collection, and trims the heap.

    The heap is trimmed with glibc only; other C libraries have no malloc_trim.
    """
    gc.collect()
    gc.freeze()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
