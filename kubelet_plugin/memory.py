"""Keeps the process small: what starting took is given back, and what is alike is shared."""

import ctypes
import gc
import sys
from collections.abc import Iterable
from dataclasses import FrozenInstanceError
from types import ModuleType

__all__ = ["settle", "share_refusals"]


def share_refusals(modules: Iterable[object]) -> None:
    """Lets the frozen dataclasses in `modules` share the methods that refuse changes.

    Each class has a pair of its own, which keeps alive what it was before it got its slots: half of
    what it takes, and a megabyte in all. What is refused stays the same. `modules` are those of
    `sys.modules`.
    """
    for module in modules:
        if not isinstance(module, ModuleType):
            continue  # what a library put there in place of one
        for value in vars(module).values():
            if isinstance(value, type) and _is_frozen_dataclass(value):
                type.__setattr__(value, "__setattr__", _set)
                type.__setattr__(value, "__delattr__", _delete)
    gc.collect()


def settle() -> None:
    """Gives back what only starting took, and spares the collector what lasts for ever."""
    gc.collect()
    gc.freeze()
    if sys.platform == "linux":
        ctypes.CDLL(None).malloc_trim(0)


def _is_frozen_dataclass(cls: type) -> bool:
    parameters = vars(cls).get("__dataclass_params__")
    return parameters is not None and parameters.frozen


def _set(self: object, name: str, value: object) -> None:
    if _is_refused(self, name):
        raise FrozenInstanceError(f"cannot assign to field {name!r}")
    object.__setattr__(self, name, value)


def _delete(self: object, name: str) -> None:
    if _is_refused(self, name):
        raise FrozenInstanceError(f"cannot delete field {name!r}")
    object.__delattr__(self, name)


def _is_refused(instance: object, name: str) -> bool:
    """All of a frozen dataclass; of a plain class derived from one, its fields."""
    cls = type(instance)
    return _is_frozen_dataclass(cls) or name in getattr(cls, "__dataclass_fields__", {})
