"""Returns to the system the memory that only the start needed."""

import ctypes
import gc


def trim_memory() -> None:
    """Collects garbage, exempts what is left from collections, and returns free memory.

    The last needs glibc; other C libraries return memory by themselves, or not at all.
    """
    gc.collect()
    gc.freeze()
    malloc_trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if malloc_trim is not None:
        malloc_trim(0)
