"""The simulated NVML library with something done at its n-th call."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from simulation.nvml import install

_OPENING = ("nvmlInit", "nvmlShutdown")


@dataclass
class NvmlCalls:
    """Counts the calls of NVML, and may answer one of them in NVML's place.

    `nvmlInit` and `nvmlShutdown` are not counted.
    """

    library: Any
    at: Callable[[int, str], int | None]
    """Gets the call's number, from 0, and its symbol; returns NVML's answer. None calls NVML."""
    symbols: list[str] = field(default_factory=list)

    def __getattr__(self, symbol: str) -> Callable[..., int]:
        function = getattr(self.library, symbol)
        if symbol.startswith(_OPENING):
            return function  # type: ignore[no-any-return]

        def call(*arguments: Any) -> int:
            number = len(self.symbols)
            self.symbols.append(symbol)
            code = self.at(number, symbol)
            return int(function(*arguments) if code is None else code)

        return call


def _none(_number: int, _symbol: str) -> int | None:
    return None


@contextmanager
def nvml_calls(
    directory: Path, at: Callable[[int, str], int | None] = _none
) -> Iterator[NvmlCalls]:
    """Has this process use the simulated node in a directory, with `at` asked at each call."""
    calls = NvmlCalls(install(directory), at)
    pynvml.nvmlLib = calls
    try:
        yield calls
    finally:
        install(directory)


def is_change(symbol: str) -> bool:
    """Whether a function changes the GPU: after a kill at any other, the node is as before it."""
    return any(word in symbol for word in ("Set", "Create", "Destroy"))
