"""A simulated node on whose GPUs claims have partitions, and the plugin that serves them."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pynvml

from carina_dra.config.device import API_VERSION
from carina_dra.config.time_slice import TimeSliceInterval
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claims.claim import ClaimReference, PreparedDevice
from kubelet_plugin.claims.kubelet_record import KubeletRecord
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.claims.nvidia_claims import NvidiaClaims
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.share_guard import UNGUARDED, ShareGuard
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.wanted import identities, wanted
from kubelet_plugin.sharing.supervision import Supervision
from simulation.nvml import SimulatedNode
from simulation.nvml.state import GpuInstance
from tests.fakes.claims import PATIENT, FakeReporter
from tests.fakes.lifecycle import lifecycle
from tests.fakes.node_ports import node_ports
from tests.samples.driver import installed_at

DRIVER: Final = "gpu.carina.dev"
NODE: Final = "node-1"


@dataclass
class MigNode:
    """The node, its claims in the API server, and the plugin: each call is that of a new process.

    NVML of this process has to be that of the simulated node (`simulation.nvml.install`).
    """

    simulated: SimulatedNode
    folder: Path
    allocations: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """Devices that claims have allocated, by the claim's name, which is its UID, too."""
    admins: set[str] = field(default_factory=set)
    """The claims with admin access."""
    configs: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """Opaque parameters by the claim's name, but for apiVersion."""
    of_class: dict[str, Mapping[str, Any]] = field(default_factory=dict)
    """The same, of the claim's class."""
    share_interval: TimeSliceInterval = "Default"
    """The setting share_time_slice."""
    pods: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """UIDs of the pods for which claims are reserved, by the claim's name."""
    seen_pods: dict[str, tuple[str, ...]] = field(default_factory=dict)
    """UIDs of the pods that the API server has said since, by the claim's name."""
    reporter: FakeReporter = field(default_factory=FakeReporter)
    device_metadata: bool = False
    """Whether containers get files with the metadata of their devices."""

    def prepare(self, claim: str, *allocated: str) -> tuple[PreparedDevice, ...]:
        """Prepares a claim, to which these devices are allocated; raises ClaimError.

        Without devices, those that were allocated before.
        """
        if allocated:
            self.allocations[claim] = allocated
        return self.claims().prepare(_reference(claim), PATIENT)

    def unprepare(self, claim: str) -> None:
        """Unprepares a claim; raises ClaimError."""
        self.claims().unprepare(_reference(claim), PATIENT)

    def repair(self) -> None:
        """Repairs, as the plugin does at its start and periodically."""
        self.claims().repair()

    def claims(self) -> ClaimLifecycle:
        """What a plugin process that has just started works with."""
        root = self.simulated.root
        notes = DriftNotes()
        cdi_specs = CdiSpecs(
            driver=DRIVER,
            driver_root=DriverRoot(installed_at(root)),
            host=HostPaths(root),
            host_device_root=root,
            directory=CdiDirectory(self.folder / "cdi", DRIVER),
            notes=notes,
        )
        nvidia_claims = NvidiaClaims(
            plugin_directory=self.folder,
            cdi_directory=self.folder / "cdi",
            driver=DRIVER,
            boot_id=self._boot_id,
        )
        self.folder.mkdir(exist_ok=True)
        return lifecycle(
            self.folder,
            driver=DRIVER,
            pool=NODE,
            boot_id=self._boot_id,
            read_claim=self._read_claim,
            read_kubelet_record=lambda: KubeletRecord(
                {name: _reference(name) for name in self.allocations}
            ),
            preparer=Preparer(
                node_ports(
                    cdi_specs,
                    root=root,
                    intents=self.folder / "mig",
                    boot_id=self._boot_id,
                    of_nvidia=nvidia_claims.devices,
                    notes=notes,
                    cgroup_root=self.cgroup_root,
                    seen_pods=lambda uid: self.seen_pods.get(uid, ()),
                    supervision=self.supervision(),
                ),
                identities=lambda claim: identities(claim, self.share_interval),
                wanted=lambda claims, live: wanted(
                    claims,
                    live,
                    self.devices(),
                    device_metadata=self.device_metadata,
                    share_interval=self.share_interval,
                ),
                answer=lambda claim: prepared_devices(DRIVER, claim),
                notes=notes,
            ),
            reporter=self.reporter,
        )

    def devices(self) -> Mapping[str, GpuDevice]:
        """The devices that the plugin publishes now, by name."""
        return {device.name: device for device in devices(self.inventory())}

    def inventory(self) -> DriverReady:
        """What the plugin reads of the GPUs now."""
        host = HostPaths(self.simulated.root)
        files = MigIntentFiles(self.folder / "mig", self._boot_id)
        inventory = NvmlReader(
            host,
            NvmlLibrary(host.gpu_addresses),
            intents=files.last_read,
            guard=self.guard,
            cgroup_root=self.cgroup_root,
        ).read()
        assert isinstance(inventory, DriverReady)
        return inventory

    def supervision(self) -> Supervision:
        """What carina-sharing says of MPS daemons: nothing, as it does not run."""
        return Supervision()

    def guard(self, _: str) -> ShareGuard:
        """What carina-sharing does for shares of a GPU."""
        return UNGUARDED

    @property
    def cgroup_root(self) -> Path:
        """The folder that stands for the host's cgroup file system."""
        return self.simulated.root / "sys/fs/cgroup"

    def instances(self, minor: int) -> tuple[GpuInstance, ...]:
        """The GPU instances that exist on a GPU."""
        return self.simulated.state.gpus[minor].instances

    def is_mig_on(self, minor: int) -> bool:
        """Whether a GPU is in MIG mode."""
        return self.simulated.state.gpus[minor].mig_enabled

    def recorded(self) -> Mapping[str, set[str]]:
        """The devices whose instances are recorded as Carina's, by the UUID of the GPU."""
        files = MigIntentFiles(self.folder / "mig", self._boot_id)
        return {uuid: set(intents.instances) for uuid, intents in files.all().items()}

    def specs(self) -> set[str]:
        """The claims that have a CDI spec."""
        return set(CdiDirectory(self.folder / "cdi", DRIVER).uids())

    def handle(self, minor: int) -> Any:
        """NVML's handle of a GPU, for what an administrator does with nvidia-smi."""
        pynvml.nvmlInit()
        return pynvml.nvmlDeviceGetHandleByUUID(self.simulated.state.gpus[minor].uuid)

    @property
    def _boot_id(self) -> str:
        return self.simulated.state.boot_id

    def _read_claim(self, claim: ClaimReference, _: float) -> Mapping[str, Any]:
        results: list[dict[str, Any]] = [
            {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device}
            | ({"adminAccess": True} if claim.name in self.admins else {})
            | (_share(number) if device.endswith("-share") else {})
            for number, device in enumerate(self.allocations[claim.name])
        ]
        allocation: dict[str, Any] = {"results": results}
        allocation["config"] = [
            {
                "source": origin,
                "opaque": {
                    "driver": DRIVER,
                    "parameters": {"apiVersion": API_VERSION, **configs[claim.name]},
                },
            }
            for origin, configs in (("FromClass", self.of_class), ("FromClaim", self.configs))
            if claim.name in configs
        ]
        return {
            "metadata": {"namespace": "default", "name": claim.name, "uid": claim.name},
            "spec": {"devices": {"requests": []}},
            "status": {
                "allocation": {"devices": allocation},
                "reservedFor": [
                    {"resource": "pods", "name": uid, "uid": uid}
                    for uid in self.pods.get(claim.name, ())
                ],
            },
        }


def _share(number: int) -> dict[str, Any]:
    consumed = {"memory": "1Gi", "cores": "10"}
    return {"shareID": f"{number:08d}-0000-4000-8000-000000000000", "consumedCapacity": consumed}


def _reference(name: str) -> ClaimReference:
    return ClaimReference(name, "default", name)
