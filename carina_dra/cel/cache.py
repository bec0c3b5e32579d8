"""A cache of compiled expressions, limited in memory."""

from collections.abc import Callable
from functools import lru_cache
from typing import Final, Generic, TypeVar

from carina_dra.cel.errors import CompileError

T = TypeVar("T")

_SHORT: Final = 256
_SHORT_ONES: Final = 2048
_LONG_ONES: Final = 64
"""A character takes about 30 bytes of memory, at most 500, so one of 10 KiB up to 5 MiB."""


class ExpressionCache(Generic[T]):
    """The results of the expressions used last, errors included. Thread-safe."""

    def __init__(self, build: Callable[[str], T]) -> None:
        def result(expression: str) -> T | str:
            try:
                return build(expression)
            except CompileError as error:
                return str(error)  # an exception would keep the frames that it passes

        self._short = lru_cache(_SHORT_ONES)(result)
        self._long = lru_cache(_LONG_ONES)(result)

    def get(self, expression: str) -> T:
        """The result for an expression: the same object each time, as long as it is cached.

        Raises:
            CompileError: the expression cannot be compiled.
        """
        cache = self._short if len(expression) <= _SHORT else self._long
        result = cache(expression)
        if isinstance(result, str):
            raise CompileError(result)
        return result
