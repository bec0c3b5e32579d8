"""The port for MIG mode, which is on while a GPU has partitions for claims.

The mode is switched on for the first partition. It stays on for a while after the last one, until
the next repair or until a claim needs the whole GPU, because a switch takes seconds and needs a GPU
that nothing uses. A mode that Carina did not switch on is an administrator's and is left.
"""

import logging
from collections.abc import Collection
from dataclasses import replace
from typing import Final

from carina_dra.nvidia.nvml_library import NvmlCallError, NvmlLibrary
from kubelet_plugin.claims.drift import MigModeDrift
from kubelet_plugin.claims.resource_failure import MigModeInUse
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.held_mode import Switch
from kubelet_plugin.inventory.mig_intent import MigIntents
from kubelet_plugin.nvml.mig import read_layout
from kubelet_plugin.nvml.mig_instance import (
    handle_of,
    is_mig_mode_on,
    read_instances,
    switch_mig_mode,
)
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.held_modes import HeldModes
from kubelet_plugin.prepare.mig_call import mig_calls, was_refused
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.resource import (
    Identity,
    MigModeOff,
    MigModeOn,
    ResourceError,
    mode_identity,
)

_HELD: Final = "NVML_ERROR_IN_USE"
"""NVML's answer while a process has the GPU open (nvml.h, nvmlDeviceSetMigMode)."""

_log = logging.getLogger(__name__)


class MigModes:
    """The GPUs whose MIG mode Carina switches on."""

    def __init__(
        self,
        library: NvmlLibrary,
        host: HostPaths,
        intents: MigIntentFiles,
        held: HeldModes,
        *,
        notes: DriftNotes | None = None,
    ) -> None:
        """`held` learns of each switch that succeeds, or that a process prevents.

        `notes` learns of each mode that is switched on.
        """
        self._library = library
        self._host = host
        self._intents = intents
        self._held = held
        self._notes = notes or DriftNotes()

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the modes that Carina switched on and has no instance for.

        Raises:
            ResourceError: the record cannot be read.
        """
        return {
            mode_identity(intents.gpu)
            for intents in self._intents.all().values()
            if intents.mode and not intents.instances
        }

    def make(self, mode: MigModeOn | MigModeOff) -> None:
        """Switches MIG mode on, unless it is on; or off, if Carina switched it on.

        Raises:
            ResourceError: the mode cannot be switched, such as while a process uses the GPU.
        """
        match mode:
            case MigModeOn():
                self.switch_on(mode.gpu)
            case MigModeOff():
                self.remove(mode.identity)

    def remove(self, identity: Identity) -> None:
        """Switches MIG mode off, if Carina switched it on and there are no instances.

        With instances of an administrator, the mode is the administrator's from now on.

        Raises:
            ResourceError: the mode cannot be switched, such as while a process uses the GPU, or
                while there are instances that Carina made.
        """
        for uuid, intents in self._intents.all().items():
            if intents.mode and intents.gpu == identity.name:
                if intents.instances:
                    raise ResourceError(MigModeInUse(uuid, tuple(sorted(intents.instances))))
                self._switch_off(uuid, intents)
                self._intents.store(uuid, replace(intents, mode=False))

    def switch_on(self, gpu: Gpu) -> None:
        """Switches MIG mode on, unless it is on. It is while procfs shows MIG instances.

        Raises:
            ResourceError: the mode cannot be switched, such as while a process uses the GPU.
        """
        if self._host.mig_instances(gpu.minor):
            self._held.switched(gpu.uuid)
            return
        with mig_calls(self._library, f"MIG mode of {gpu.uuid} cannot be switched on"):
            handle = handle_of(gpu.uuid, gpu.pci_bus_id)
            if is_mig_mode_on(handle):
                self._held.switched(gpu.uuid)
                return
            self._notes.note(MigModeDrift(gpu.uuid))
            intents = self._intents.current(gpu)
            self._intents.store(gpu.uuid, replace(intents, mode=True))
            try:
                self._switch(gpu.uuid, handle, Switch.ON)
            except NvmlCallError as error:
                if was_refused(error.failure):
                    # Whoever switches it on now is not Carina.
                    self._intents.store(gpu.uuid, replace(intents, mode=False))
                raise

    def _switch_off(self, uuid: str, intents: MigIntents) -> None:
        with mig_calls(self._library, f"MIG mode of {uuid} cannot be switched off"):
            handle = handle_of(uuid, intents.pci_bus_id)
            if is_mig_mode_on(handle) and not read_instances(handle, read_layout(handle)):
                self._switch(uuid, handle, Switch.OFF)

    def _switch(self, uuid: str, handle: object, switch: Switch) -> None:
        """Switches the mode; raises NvmlCallError."""
        try:
            switch_mig_mode(handle, on=switch is Switch.ON)
        except NvmlCallError as error:
            if error.failure.code == _HELD:
                self._held.refused(uuid, switch, error.failure)
            raise
        self._held.switched(uuid)
