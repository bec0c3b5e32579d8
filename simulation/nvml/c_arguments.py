"""Arguments of C functions, as pynvml passes them through ctypes.

Numbers come as Python integers or ctypes ones, results are written through `byref` or into buffers,
and handles are pointers that nobody follows: the simulation puts a number of its own there.
"""

import ctypes
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

__all__ = [
    "Handle",
    "Kind",
    "fill",
    "number",
    "pointer",
    "put",
    "put_handle",
    "put_text",
    "text",
    "unpack",
]

Kind: TypeAlias = Literal["device", "mig device", "gpu instance", "compute instance", "event set"]
_KINDS: tuple[Kind, ...] = get_args(Kind)


@dataclass(frozen=True, slots=True)
class Handle:
    """What a simulated handle says: what it is of, and in which nvmlInit it was given out."""

    kind: Kind
    session: int
    minor: int
    """Of the GPU; an event set's number."""
    gpu_instance: int = 0
    compute_instance: int = 0

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
    if not isinstance(argument, ctypes._Pointer):  # noqa: SLF001  (the only name there is)
        return None
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
