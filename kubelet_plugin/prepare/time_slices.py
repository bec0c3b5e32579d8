"""The port for time slices: their length on the GPUs for whose claims Carina sets it.

The length cannot be read back. So it is recorded that it was set, before it is, and it is set again
by each call and repair: the driver forgets it when it is reloaded. Other lengths, which nothing
records, are an administrator's and are left.
"""

import logging
from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Final

from carina_dra.config.time_slice import TimeSliceInterval
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.inventory.mig_intent import MigIntents
from kubelet_plugin.nvml.mig_instance import handle_of
from kubelet_plugin.prepare.compute_policy import ComputePolicy, PolicyUnchangedError
from kubelet_plugin.prepare.mig_call import mig_calls
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.resource import (
    Identity,
    LeftBehindError,
    ResourceError,
    TimeSlice,
    time_slice_identity,
)

_RECENT: Final = 5.0
"""Seconds for which a length need not be set again: no driver is reloaded in less. A repair takes
many shares of a GPU in that time."""

_log = logging.getLogger(__name__)


class TimeSlices:
    """The time slices that Carina sets on this node's GPUs."""

    def __init__(
        self,
        library: NvmlLibrary,
        policy: ComputePolicy,
        intents: MigIntentFiles,
        *,
        clock: Callable[[], float],
    ) -> None:
        """`clock` is monotonic, in seconds."""
        self._library = library
        self._policy = policy
        self._intents = intents
        self._clock = clock
        self._set: dict[str, tuple[TimeSliceInterval, float]] = {}

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the GPUs for which it is recorded that the length was set.

        Raises:
            ResourceError: the record cannot be read.
        """
        recorded = self._intents.all().values()
        return {time_slice_identity(intents.gpu) for intents in recorded if intents.time_slice}

    def make(self, wanted: TimeSlice) -> None:
        """Sets the length of a GPU's time slices.

        Raises:
            ResourceError: it cannot be set or recorded.
        """
        gpu = wanted.gpu
        intents = self._intents.current(gpu)
        before, at = self._set.pop(gpu.uuid, (None, 0.0))
        if intents.time_slice and before == wanted.interval and self._clock() < at + _RECENT:
            self._set[gpu.uuid] = wanted.interval, at
            return
        recorded = replace(intents, time_slice=True)
        if self._intents.read(gpu.uuid) != recorded:  # also if the GPU had another name
            self._intents.store(gpu.uuid, recorded)
        try:
            self._policy.set_time_slice(gpu.uuid, wanted.interval)
        except PolicyUnchangedError:
            # Else the reset, which fails for the same reason, would keep the claim on the GPU.
            self._intents.store(gpu.uuid, intents)
            raise
        self._set[gpu.uuid] = wanted.interval, self._clock()

    def remove(self, identity: Identity) -> None:
        """Sets the driver's default again, if the length was set.

        Raises:
            LeftBehindError: it cannot be set now.
            ResourceError: the record cannot be changed.
        """
        for uuid, intents in self._intents.all().items():
            if intents.time_slice and intents.gpu == identity.name:
                self._set.pop(uuid, None)
                self._reset(uuid, intents)
                self._intents.store(uuid, replace(intents, time_slice=False))

    def _reset(self, uuid: str, intents: MigIntents) -> None:
        try:
            with mig_calls(self._library, f"time slices of {uuid} cannot be set to Default"):
                handle_of(uuid, intents.pci_bus_id)
            self._policy.set_time_slice(uuid, "Default")
        except ResourceError as error:
            if error.failure.retriable:
                raise LeftBehindError(error.failure) from error
            # The GPU does not support it, so that nothing was set either.
            _log.warning("time slices are not reset", extra={"reason": str(error)})
