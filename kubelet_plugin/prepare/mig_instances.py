"""The port for MIG instances: a GPU instance at its placement, with its compute instance.

An instance is recorded before it is made, so that it is known as Carina's whenever it exists. One
that is there and not recorded is an administrator's: it is used if it is what the claim has, and it
is never destroyed. Killed anywhere, the next call completes what is recorded, or undoes it. If
Carina was replaced by NVIDIA's DRA driver and comes back, an instance of that driver can be where
Carina had recorded one; it is left, too.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass

from carina_dra.nvidia.nvml_library import NvmlCallError, NvmlLibrary
from kubelet_plugin.claims.drift import MigInstanceDrift
from kubelet_plugin.claims.resource_failure import MigInstanceDivided, MigInstanceVanished
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.mig import ComputeInstance, GpuInstance
from kubelet_plugin.inventory.mig_intent import MigIntents
from kubelet_plugin.nvml.mig_instance import (
    create_compute_instance,
    create_gpu_instance,
    destroy_instance,
    find_instance,
    handle_of,
)
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.mig_call import mig_calls, was_refused
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.resource import (
    Identity,
    MadeInstance,
    MigInstance,
    ResourceError,
    instance_identity,
)

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Known:
    made: MadeInstance
    shown: Mapping[str, object]
    """What procfs showed of its GPU instance then."""


class MigInstances:
    """The MIG instances that Carina makes on this node's GPUs."""

    def __init__(
        self,
        library: NvmlLibrary,
        host: HostPaths,
        intents: MigIntentFiles,
        *,
        of_nvidia: Callable[[], Collection[str]],
        notes: DriftNotes | None = None,
    ) -> None:
        """`of_nvidia` returns the names of the devices that NVIDIA's DRA driver has prepared.

        `notes` learns of what is made.
        """
        self._library = library
        self._host = host
        self._intents = intents
        self._of_nvidia = of_nvidia
        self._notes = notes or DriftNotes()
        self._known: dict[tuple[str, str], _Known] = {}
        """What was found last, by UUID of the GPU and name of the device."""

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the recorded instances, whether they exist already or still.

        Raises:
            ResourceError: the record cannot be read.
        """
        return {
            instance_identity(device)
            for intents in self._intents.all().values()
            for device in intents.instances
        }

    def make(self, instance: MigInstance) -> MadeInstance:
        """Makes the instance, or completes it, unless it is there. MIG mode is on.

        As long as procfs shows the instance that was found last, NVML is not called.

        Raises:
            ResourceError: it cannot be made or recorded, or an administrator has divided it.
        """
        device, gpu = instance.device, instance.device.gpu
        shown = self._host.mig_instances(gpu.minor) or {}
        known = self._known.get((gpu.uuid, device.name))
        if known is not None and known.shown == _shown(shown, known.made.gpu_instance):
            return known.made
        made = self._make(instance)
        if f"gi{made.gpu_instance}/ci{made.compute_instance}" in shown:
            found = _Known(made, _shown(shown, made.gpu_instance))
            self._known[gpu.uuid, device.name] = found
        return made

    def _make(self, instance: MigInstance) -> MadeInstance:
        device, gpu, site = instance.device, instance.device.gpu, instance.device.site
        task = f"MIG instance {device.name} cannot be made on {gpu.uuid}"
        with mig_calls(self._library, task):
            handle = handle_of(gpu.uuid, gpu.pci_bus_id)
            found = find_instance(handle, site)
            own = found is None or self._is_own(instance)
            if found is None or (own and not found.compute_instances):
                self._notes.note(MigInstanceDrift(device.name))
            if found is None:
                self._create(handle, instance)
                found = find_instance(handle, site)
            if found is not None and not found.compute_instances and own:
                create_compute_instance(handle, found.id, device.profile)
                found = find_instance(handle, site)
            compute = None if found is None else found.undivided(device.profile)
            if found is None or compute is None:
                raise _not_whole(task, found)
            return _made(found, compute)

    def remove(self, identity: Identity) -> None:
        """Destroys the instance of this device, if Carina made it and it exists, and its record.

        Of an instance that NVIDIA's driver has for a claim, only the record is removed.

        Raises:
            LeftBehindError: its GPU does not answer, so that it may exist still.
            ResourceError: it cannot be destroyed, such as while a process uses it.
        """
        for uuid, intents in self._intents.all().items():
            if identity.name in intents.instances:
                if identity.name not in self._of_nvidia():
                    self._destroy(uuid, intents, identity.name)
                self._intents.store(uuid, intents.without_instance(identity.name))

    def _create(self, handle: object, instance: MigInstance) -> None:
        """Records the GPU instance as Carina's, and makes it."""
        device, gpu = instance.device, instance.device.gpu
        intents = self._intents.current(gpu)
        self._intents.store(gpu.uuid, intents.with_instance(device.name, device.site))
        try:
            create_gpu_instance(handle, device.site)
        except NvmlCallError as error:
            if was_refused(error.failure):
                # What is there now, or will be, is not Carina's.
                self._intents.store(gpu.uuid, intents.without_instance(device.name))
            raise

    def _is_own(self, instance: MigInstance) -> bool:
        """Returns whether the GPU instance is Carina's, and records it under its present name."""
        device, gpu = instance.device, instance.device.gpu
        recorded = self._intents.read(gpu.uuid)
        if recorded is None or device.site not in recorded.instances.values():
            return False
        present = self._intents.current(gpu).with_instance(device.name, device.site)
        if present != recorded:
            self._intents.store(gpu.uuid, present)
        return True

    def _destroy(self, uuid: str, intents: MigIntents, device: str) -> None:
        with mig_calls(self._library, f"MIG instance {device} on {uuid} cannot be destroyed"):
            handle = handle_of(uuid, intents.pci_bus_id)
            destroy_instance(handle, intents.instances[device])


def _shown(instances: Mapping[str, object], gpu_instance: int) -> Mapping[str, object]:
    """Returns what procfs shows of a GPU instance and its compute instances."""
    own = f"gi{gpu_instance}"
    return {name: file for name, file in instances.items() if name.partition("/")[0] == own}


def _made(instance: GpuInstance, compute: ComputeInstance) -> MadeInstance:
    return MadeInstance(instance.id, compute.id, compute.uuid)


def _not_whole(task: str, found: GpuInstance | None) -> ResourceError:
    if found is None:
        return ResourceError(MigInstanceVanished(task))
    return ResourceError(MigInstanceDivided(task, found.id, len(found.compute_instances)))
