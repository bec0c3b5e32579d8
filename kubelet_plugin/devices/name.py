"""Device names: each tells the whole identity of its device, whether the device is there or not.

The checkpoint and the API hold names only, so what can be said of a device from its name alone can
be said at any time: after its GPU has vanished, and by a plugin that was just started.
"""

import re
from dataclasses import dataclass
from typing import TypeAlias

_OF_GPU = re.compile(r"gpu-(0|[1-9]\d*)(?P<rest>-.*)?")


@dataclass(frozen=True, slots=True)
class WholeGpuName:
    """`gpu-<minor>`."""

    minor: int

    def __str__(self) -> str:
        return f"gpu-{self.minor}"


@dataclass(frozen=True, slots=True)
class UnknownName:
    """The name of a device of no kind that this version knows."""

    text: str
    minor: int | None
    """The GPU's minor number, if the name begins as all names of devices of a GPU do."""

    def __str__(self) -> str:
        return self.text


DeviceName: TypeAlias = WholeGpuName | UnknownName


def parse_name(text: str) -> DeviceName:
    """Gives the identity behind a device's name."""
    match = _OF_GPU.fullmatch(text)
    if match is None:
        return UnknownName(text, None)
    minor = int(match[1])
    return UnknownName(text, minor) if match["rest"] else WholeGpuName(minor)


def gpu_name(name: DeviceName) -> str:
    """Names the GPU that the device is on, `gpu-<minor>`: what one lock or counter set is for.

    A device of an unknown kind on no known GPU stands for itself.
    """
    match name:
        case WholeGpuName(minor):
            return f"gpu-{minor}"
        case UnknownName(text, minor):
            return text if minor is None else f"gpu-{minor}"
