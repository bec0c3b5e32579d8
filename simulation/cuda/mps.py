"""How a simulated CUDA attaches to an MPS daemon: by its socket, as the environment says."""

import os
import socket
from dataclasses import dataclass
from pathlib import Path
from typing import Final

__all__ = ["Attachment", "attach"]

_UNITS: Final = {"G": 2**30, "M": 2**20}


@dataclass(frozen=True, slots=True)
class Attachment:
    """What the server has told a client."""

    server: int
    """PID."""
    limit: int | None
    """Bytes of the first device; None for no limit."""
    percentage: int


def attach(*, raises: bool) -> Attachment | None:
    """Attaches to the daemon; None without one, as CUDA then goes on without MPS.

    The environment can lower limits; if it `raises` them, it can raise them, too.
    """
    pipes = os.environ.get("CUDA_MPS_PIPE_DIRECTORY")
    said = None if pipes is None else _ask(Path(pipes) / "control")
    if said is None:
        return None
    server, limits, percentage = said.split()
    limit = _limit(limits)
    asked = _limit(os.environ.get("CUDA_MPS_PINNED_DEVICE_MEM_LIMIT", ""))
    if asked is not None:
        limit = asked if raises or limit is None else min(limit, asked)
    most = int(float(percentage))
    wanted = int(os.environ.get("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", "100"))
    return Attachment(int(server), limit, wanted if raises else min(most, wanted))


def _ask(path: Path) -> str | None:
    with socket.socket(socket.AF_UNIX) as connection:
        try:
            connection.connect(str(path))
        except OSError:
            return None
        connection.sendall(b"connect\n")
        with connection.makefile("rb") as answers:
            said = b""
            while not said.endswith(b"\0"):
                part = answers.read(1)
                if not part:
                    return None
                said += part
    return said[:-1].decode().strip()


def _limit(text: str) -> int | None:
    """The limit of the first device, of a text such as `0=2048M,1=1G`."""
    for entry in text.split(","):
        device, _, size = entry.partition("=")
        if device == "0" and size[-1:] in _UNITS:
            return int(size[:-1]) * _UNITS[size[-1]]
    return None
