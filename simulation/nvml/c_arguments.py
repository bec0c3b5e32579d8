"""Arguments of C functions, as pynvml passes them through ctypes.

Numbers are Python or ctypes integers, results are written through `byref` or into buffers, and
handles are pointers that are never dereferenced: the simulation stores a number in them.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

__all__ = [
    "Handle",
    "HandleType",
    "fill",
    "number",
    "pointer",
    "put",
    "put_handle",
    "put_text",
    "text",
    "unpack",
]

HandleType: TypeAlias = Literal[
    "device", "mig device", "gpu instance", "compute instance", "event set"
]
_HANDLE_TYPES: tuple[HandleType, ...] = get_args(HandleType)


@dataclass(frozen=True, slots=True)
class Handle:
    """The content of a simulated handle: its object, and the nvmlInit that it belongs to."""

    type: HandleType
    session: int
    minor: int
    """The minor number of the GPU; for an event set, its number."""
    gpu_instance: int = 0
    compute_instance: int = 0

    def pack(self) -> int:
        """The handle as one number, never 0."""
        return (
            (_HANDLE_TYPES.index(self.type) + 1) << 48
            | (self.session & 0xFFFF) << 32
            | self.minor << 16
            | self.gpu_instance << 8
            | self.compute_instance
        )


def unpack(argument: Any) -> Handle | None:
    """The handle in an argument; None if the simulation has not made it."""
    if not isinstance(argument, ctypes._Pointer):  # noqa: SLF001  (it has no public name)
        return None
    value = ctypes.cast(argument, ctypes.c_void_p).value or 0
    index = (value >> 48) - 1
    if not 0 <= index < len(_HANDLE_TYPES):
        return None
    return Handle(
        _HANDLE_TYPES[index],
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
    """Writes a string into a buffer; gives False if the buffer is too short."""
    raw = value.encode()
    if len(raw) >= number(length):
        return False
    buffer.value = raw
    return True


def put_handle(reference: Any, handle: Handle) -> None:
    """Writes a handle through `byref`."""
    ctypes.c_void_p.from_buffer(target(reference)).value = handle.pack()


def pointer(pointer_type: Any, handle: Handle) -> Any:
    """A handle as a pointer of a type, for a field of a structure."""
    return ctypes.cast(ctypes.c_void_p(handle.pack()), pointer_type)


def fill(reference: Any, **fields: Any) -> None:
    """Writes fields of a structure through `byref`."""
    structure = target(reference)
    for name, value in fields.items():
        setattr(structure, name, value)


def target(reference: Any) -> Any:
    """The object that `byref` refers to."""
    return reference._obj  # noqa: SLF001  (there is no public way)
