"""Arguments of C functions, as pynvml passes them through ctypes.

Numbers come as Python integers or ctypes ones, results are written through `byref` or into buffers,
and handles are pointers that nobody follows: the simulation puts a number of its own there.
"""

import ctypes
from typing import Any

__all__ = ["Handle", "fill", "number", "pointer", "put", "put_handle", "put_text", "text", "unpack"]

_KINDS = ("device", "mig device", "gpu instance", "compute instance", "event set")


class Handle:
    """What a simulated handle says: whose it is, and in which nvmlInit it was given out."""

    __slots__ = ("compute_instance", "gpu_instance", "kind", "minor", "session")

    def __init__(
        self,
        kind: str,
        session: int,
        minor: int,
        gpu_instance: int = 0,
        compute_instance: int = 0,
    ) -> None:
        self.kind = kind
        self.session = session
        self.minor = minor
        self.gpu_instance = gpu_instance
        self.compute_instance = compute_instance

    def pack(self) -> int:
        """As one number, never 0."""
        return (
            (_KINDS.index(self.kind) + 1) << 48
            | (self.session & 0xFFFF) << 32
            | self.minor << 16
            | self.gpu_instance << 8
            | self.compute_instance
        )


def unpack(argument: Any) -> Handle | None:
    """The handle in an argument; None if it is none of ours."""
    value = ctypes.cast(argument, ctypes.c_void_p).value or 0
    kind = (value >> 48) - 1
    if not 0 <= kind < len(_KINDS):
        return None
    return Handle(
        _KINDS[kind],
        value >> 32 & 0xFFFF,
        value >> 16 & 0xFFFF,
        value >> 8 & 0xFF,
        value & 0xFF,
    )


def number(argument: Any) -> int:
    """An integer argument."""
    return int(getattr(argument, "value", argument))


def text(argument: Any) -> str:
    """A string argument."""
    value = getattr(argument, "value", argument)
    return str(value.decode())


def put(reference: Any, value: int) -> None:
    """Writes a number through `byref`."""
    target(reference).value = value


def put_text(buffer: Any, length: Any, value: str) -> bool:
    """Writes a string into a buffer; False if it is too short."""
    raw = value.encode()
    if len(raw) >= number(length):
        return False
    buffer.value = raw
    return True


def put_handle(reference: Any, handle: Handle) -> None:
    """Writes a handle through `byref`."""
    ctypes.c_void_p.from_buffer(target(reference)).value = handle.pack()


def pointer(kind: Any, handle: Handle) -> Any:
    """A handle as a pointer of a structure's field type."""
    return ctypes.cast(ctypes.c_void_p(handle.pack()), kind)


def fill(reference: Any, **fields: Any) -> None:
    """Writes fields of a structure through `byref`."""
    structure = target(reference)
    for name, value in fields.items():
        setattr(structure, name, value)


def target(reference: Any) -> Any:
    """What `byref` refers to."""
    return reference._obj  # noqa: SLF001  (the only way there is)
