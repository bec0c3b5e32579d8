"""Whether a limit holds: a process allocates until it gets no more."""

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Final, TypeAlias

from gpu_proof.bench import MIB
from gpu_proof.client import ClientError, CudaClient
from gpu_proof.cuda import AllocatingCall

_BEYOND: Final = 1024 * MIB
"""What a process tries to get beyond its limit. Not all of the GPU: that would disturb others."""
Starting: TypeAlias = Callable[[], AbstractContextManager[CudaClient]]


def held(start: Starting, kind: AllocatingCall, limit: int) -> tuple[bool, str]:
    """Returns whether a process gets up to the limit and no more, and what it got.

    Its context may count, so it may get less, but not less than half.
    """
    with start() as client:
        client.get("attach")
        had = int(client.get("fill", kind=kind, most=limit + _BEYOND))
    measured = f"{had // MIB} MiB, with a limit of {limit // MIB} MiB"
    return limit // 2 <= had <= limit, measured


def escapes(start: Starting, limit: int) -> str:
    """Returns what managed memory gets beyond a limit."""
    try:
        with start() as client:
            client.get("attach")
            had = int(client.get("fill", kind="cuMemAllocManaged", most=limit + _BEYOND))
    except ClientError as error:
        return str(error)
    return f"{had // MIB} MiB, with a limit of {limit // MIB} MiB"
