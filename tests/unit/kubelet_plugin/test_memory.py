"""Memory is trimmed on any C library."""

import ctypes
import gc
from types import SimpleNamespace

import pytest

from kubelet_plugin.memory import trim_memory


def test_objects_that_exist_are_exempt_from_collections() -> None:
    before = gc.get_freeze_count()
    try:
        trim_memory()
        assert gc.get_freeze_count() > before
    finally:
        gc.unfreeze()


def test_free_memory_is_returned_where_glibc_can(monkeypatch: pytest.MonkeyPatch) -> None:
    kept: list[int] = []
    libc = SimpleNamespace(malloc_trim=kept.append)
    monkeypatch.setattr(ctypes, "CDLL", lambda _: libc)
    try:
        trim_memory()
    finally:
        gc.unfreeze()
    assert kept == [0]


def test_a_c_library_without_malloc_trim_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ctypes, "CDLL", lambda _: SimpleNamespace())
    try:
        trim_memory()
    finally:
        gc.unfreeze()
