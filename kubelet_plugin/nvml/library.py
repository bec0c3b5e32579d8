"""The NVML library: which one is loaded, and how its functions are called.

pynvml keeps one library for as long as the process lives.
"""

import ctypes
import logging
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pynvml

from kubelet_plugin.inventory.gpu import NvmlFailure
from kubelet_plugin.rooted_path import RootedPath

__all__ = ["NvmlCallError", "NvmlLibrary", "call"]

_log = logging.getLogger(__name__)

_CODES: Final[Mapping[int, str]] = {
    getattr(pynvml, name): name for name in dir(pynvml) if name.startswith("NVML_ERROR_")
}


class NvmlCallError(Exception):
    """An NVML call that did not succeed."""

    def __init__(self, failure: NvmlFailure) -> None:
        super().__init__(str(failure))
        self.failure = failure


def call(function: str, *arguments: object) -> Any:
    """Gives what a function of pynvml answers. Raises NvmlCallError."""
    try:
        return getattr(pynvml, function)(*arguments)
    except pynvml.NVMLError as error:
        code = _CODES.get(error.value, f"NVML error {error.value}")
        raise NvmlCallError(NvmlFailure(function, code)) from None


class NvmlLibrary:
    """The library of a driver below a root, or the one that the loader finds."""

    def __init__(self, candidates: Sequence[RootedPath]) -> None:
        """The first of `candidates` that exists is loaded; the loader's choice if there is none."""
        self._candidates = tuple(candidates)
        self._loaded: Path | None = None

    @property
    def places(self) -> str:
        """Where it is looked for, in words."""
        return " or ".join(["by the loader", *(f"at {path}" for path in self._candidates)])

    @property
    def replacement(self) -> Path | None:
        """The library that would be loaded now, if it is another one than was."""
        installed = self._installed()
        return installed if installed != self._loaded else None

    def load(self) -> None:
        """Loads it, unless it is. Where no candidate can be loaded, pynvml asks the loader."""
        self._loaded = self._loaded or self._installed()
        if pynvml.nvmlLib is not None:
            return
        for path in self._existing():
            try:
                pynvml.nvmlLib = ctypes.CDLL(str(path))
            except OSError as error:
                _cannot_load(path, error)
            else:
                return

    def _installed(self) -> Path | None:
        """The first candidate that exists, by the name that its links lead to."""
        return next(self._existing(), None)

    def _existing(self) -> Iterator[Path]:
        """The files that the candidates are for this process, without links."""
        for candidate in self._candidates:
            try:
                path = candidate.locate()
                path.lstat()
            except FileNotFoundError:
                continue
            except OSError as error:
                _cannot_load(candidate, error)
            else:
                yield path


def _cannot_load(path: Path | RootedPath, error: OSError) -> None:
    _log.warning("NVML library cannot be loaded", extra={"path": str(path), "error": str(error)})
