"""The MIG instances of GPUs as read before, for as long as the kernel shows the same ones.

Reading the instances of a GPU costs about a hundred calls of NVML, and what is read does not change
while an instance exists. That one came, went or was made again shows in procfs at no call. So
instances are read again when procfs shows others, in a new session, and now and then. Where procfs
does not show what NVML says, such as in a guest, they are read at each look.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from carina_dra.nvidia.nvml_library import NvmlSession
from kubelet_plugin.inventory.mig import GpuInstance

_LONGEST: Final = 300.0
"""Seconds after which instances are read again, at the latest."""


@dataclass(frozen=True, slots=True)
class _Known:
    instances: tuple[GpuInstance, ...]
    shown: Mapping[str, object]
    until: float


class InstanceCache:
    """The instances that were read last. Not thread-safe."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._known: dict[str, _Known] = {}
        self._session = NvmlSession(None)

    def begin(self, session: NvmlSession) -> None:
        """A look begins. In a new session, everything is read again."""
        if session is not self._session:
            self._session, self._known = session, {}

    def forget(self, gpu: str) -> None:
        """Has the instances of a GPU read again, such as after a reset."""
        self._known.pop(gpu, None)

    def instances(
        self,
        gpu: str,
        shown: Mapping[str, object] | None,
        read: Callable[[], tuple[GpuInstance, ...]],
    ) -> tuple[GpuInstance, ...]:
        """Returns the instances of the GPU with this UUID; `read` reads them, and may raise.

        `shown` is what `HostPaths.mig_instances` returns, before they are read.
        """
        known, now = self._known.get(gpu), self._clock()
        if known and known.shown == shown and now < known.until:
            return known.instances
        self.forget(gpu)
        instances = read()
        # Those that were made or destroyed meanwhile are missing in one of the two.
        if shown is not None and shown.keys() == set(_names(instances)):
            self._known[gpu] = _Known(instances, shown, now + _LONGEST)
        return instances


def _names(instances: Iterable[GpuInstance]) -> Iterable[str]:
    for instance in instances:
        yield f"gi{instance.id}"
        for compute in instance.compute_instances:
            yield f"gi{instance.id}/ci{compute.id}"
