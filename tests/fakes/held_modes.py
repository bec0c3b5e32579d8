"""A node whose GPU 0 an agent may hold open, with what remembers refused switches of MIG mode."""

from contextlib import suppress
from time import monotonic, sleep

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim_reader import ClaimReader
from kubelet_plugin.claims.lock import FileLock, GpuLocks
from kubelet_plugin.claims.record import ClaimRecord
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.inventory.inventory import Inventory, known_gpus
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.held_modes import HeldModeRetry, HeldModes
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.mig_mode import MigModes
from kubelet_plugin.prepare.resource import MigModeOff, MigModeOn, ResourceError
from tests.fakes.lifecycle import CHECKPOINT, LOCK
from tests.fakes.mig_node import DRIVER, NODE, MigNode

_AGENT = 4242


class HeldNode:
    """The node and a plugin that goes on working; `now` is its time in seconds."""

    def __init__(self, node: MigNode) -> None:
        node.folder.mkdir()
        self.node = node
        self.now = 0.0
        self.switches = 0
        """How often MIG mode was to be switched on."""
        host = HostPaths(node.simulated.root)
        library = NvmlLibrary(host.gpu_addresses)
        self._files = MigIntentFiles(node.folder / "mig", node.simulated.state.boot_id)
        self._held = HeldModes(clock=lambda: self.now)
        self._reader = NvmlReader(
            host, library, intents=self._files.last_read, held_mode=self._held.of
        )
        self._modes = MigModes(library, host, self._files, self._held)
        self._retry = HeldModeRetry(
            self._held,
            record=_record(node),
            gpus=lambda: {known.gpu.uuid: known.gpu for known in known_gpus(self._look())},
            switch_on=self._switch_on,
            clock=monotonic,
        )

    def agent_begins(self) -> None:
        """An agent opens GPU 0."""
        self.node.simulated.run_process(0, _AGENT)

    def agent_ends(self) -> None:
        """The agent closes it."""
        self.node.simulated.end_process(0, _AGENT)

    def switch_on(self) -> None:
        """Makes MIG mode of GPU 0 for a partition, as far as NVML lets it."""
        with suppress(ResourceError):
            self._modes.make(MigModeOn(self._gpu))

    def switch_off(self) -> None:
        """Ends it, for the whole GPU."""
        with suppress(ResourceError):
            self._modes.make(MigModeOff(self._gpu))

    def tries_at(self, seconds: float) -> int:
        """Returns how many switches are tried when that time has passed since the start."""
        self.now, self.switches = seconds, 0
        self._retry.run()
        return self.switches

    def tainted(self) -> set[str]:
        """The devices with a taint."""
        settings = PublishSettings(DRIVER)
        return {
            device.name for device in devices(self._look()) if device.published(settings).taints
        }

    def partitions(self) -> set[str]:
        """The partitions of GPU 0."""
        names = self.node.devices()
        return {name for name in names if name.startswith("gpu-0-mig-")}

    @property
    def _gpu(self) -> Gpu:
        return known_gpus(self._look())[0].gpu

    def _look(self) -> Inventory:
        return self._reader.read()

    def _switch_on(self, gpu: Gpu) -> None:
        self.switches += 1
        self._modes.switch_on(gpu)


def _record(node: MigNode) -> ClaimRecord:
    return ClaimRecord(
        CheckpointFile(node.folder / CHECKPOINT),
        boot_id=node.simulated.state.boot_id,
        node_lock=FileLock(node.folder / LOCK, clock=monotonic, pause=sleep),
        gpu_locks=GpuLocks(node.folder, clock=monotonic, pause=sleep),
        reader=ClaimReader(lambda *_: {}, driver=DRIVER, pool=NODE),
        owners=tuple,
        on_change=lambda _: None,
        reporter=node.reporter,
        clock=monotonic,
    )
