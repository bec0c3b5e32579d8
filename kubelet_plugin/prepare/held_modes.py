"""The GPUs whose MIG mode cannot be switched, and the attempts that find out when it can again.

A partition of such a GPU would be allocated and never prepared. So its devices are tainted until a
switch succeeds. No claim makes the attempt then; Carina makes it itself, at growing intervals, on a
GPU that no claim uses. After one that succeeds, MIG mode is on for no partition, and the next
repair switches it off, as after the last partition.
"""

import logging
import threading
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.claims.record import LOCK_PATIENCE, ClaimRecord
from kubelet_plugin.devices.name import gpu_name
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.held_mode import (
    HeldMode,
    RefusedSwitches,
    Switch,
    due,
    refused,
    switched,
)
from kubelet_plugin.prepare.resource import ResourceError

_log = logging.getLogger(__name__)


class HeldModes:
    """What NVML said to the last switch of each GPU's MIG mode. Several threads use it."""

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        changed: Callable[[], None] = lambda: None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """`clock` is monotonic, in seconds. `changed` is called after each change, and returns at
        once.
        """
        self._clock = clock
        self._changed = changed
        self._now = now
        self._lock = threading.Lock()
        self._refusals: RefusedSwitches = {}

    def of(self, uuid: str) -> HeldMode | None:
        """Returns the switch that NVML refuses for this GPU."""
        refusal = self._refusals.get(uuid)
        return None if refusal is None else refusal.held

    def refused(self, uuid: str, switch: Switch, failure: NvmlFailure) -> None:
        """NVML has refused a switch, because a process has the GPU open."""
        held = HeldMode(switch, failure, self._now())
        with self._lock:
            before = self.of(uuid)
            self._refusals = refused(self._refusals, uuid, held, self._clock())
            changed = self.of(uuid) != before
        if changed:
            self._changed()

    def switched(self, uuid: str) -> None:
        """The GPU's MIG mode is as it was wanted."""
        with self._lock:
            known = uuid in self._refusals
            self._refusals = switched(self._refusals, uuid)
        if known:
            self._changed()

    def due(self) -> tuple[str, ...]:
        """Returns the UUIDs of the GPUs for which an attempt is due."""
        return due(self._refusals, self._clock())


class HeldModeRetry:
    """Tries to switch on the MIG modes that NVML refused to switch on."""

    def __init__(
        self,
        held: HeldModes,
        *,
        record: ClaimRecord,
        gpus: Callable[[], Mapping[str, Gpu]],
        switch_on: Callable[[Gpu], None],
        clock: Callable[[], float],
    ) -> None:
        """`gpus` returns the GPUs by UUID; `switch_on` raises ResourceError."""
        self._held = held
        self._record = record
        self._gpus = gpus
        self._switch_on = switch_on
        self._clock = clock

    def run(self) -> None:
        """Makes the attempts that are due. Raises nothing."""
        for uuid in self._held.due():
            gpu = self._gpus().get(uuid)
            if gpu is not None:
                try:
                    self._try(gpu)
                except (ClaimError, ResourceError) as error:
                    _log.info(
                        "MIG mode still cannot be switched on",
                        extra={"gpu": uuid, "reason": str(error)},
                    )

    def _try(self, gpu: Gpu) -> None:
        """Switches MIG mode on, unless a claim holds a device of the GPU."""
        name = f"gpu-{gpu.minor}"
        with self._record.gpus(frozenset({name}), self._clock() + LOCK_PATIENCE):
            with self._record.checkpoint() as checkpoint:
                claims = tuple(checkpoint.claims.values())
            if all(gpu_name(hold.device) != name for claim in claims for hold in claim.holds):
                self._switch_on(gpu)
