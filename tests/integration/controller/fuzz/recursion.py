"""Objects that are nested more deeply than the interpreter lets be written by itself."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Final

_DEEPEST: Final = 10_000


@contextlib.contextmanager
def deep_recursion() -> Iterator[None]:
    """Raises the interpreter's limit while the context lasts."""
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(_DEEPEST)
    try:
        yield
    finally:
        sys.setrecursionlimit(limit)
