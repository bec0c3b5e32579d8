"""A node with two GPUs, and what must be true of it whatever has happened."""

import ctypes
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

import pynvml

from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.name import PartitionName, parse_name
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from simulation.nvml import SimulatedNode, install
from simulation.nvml.state import GpuInstance
from tests.fakes.mig_node import NODE, MigNode

_SLOTS = 8


@dataclass
class TwoGpus(MigNode):
    """GPUs 0 and 1 of the product."""

    known: Mapping[str, GpuDevice] = field(default_factory=dict)
    """What the plugin has read of the GPUs at its last look; empty if it looks each time."""

    @classmethod
    def create(
        cls, folder: Path, profile: str = "dgx-h100", *, driver_version: str | None = None
    ) -> Self:
        """Creates the node, on which this process has NVML."""
        simulated = SimulatedNode.create(
            folder / "node",
            profile,
            name=NODE,
            unplugged=range(2, _SLOTS),
            driver_version=driver_version,
        )
        install(simulated.directory)
        return cls(simulated, folder / "plugin")

    def devices(self) -> Mapping[str, GpuDevice]:
        """The devices by name, as they were last read."""
        return self.known or super().devices()

    def look(self) -> None:
        """Reads the GPUs, once for the calls that follow."""
        self.known = super().devices()

    def claims_recorded(self) -> Mapping[str, tuple[str, ...]]:
        """The devices of the claims in the checkpoint."""
        checkpoint = CheckpointFile(self.folder / "checkpoint.jsonl").load()
        claims = {} if checkpoint is None else checkpoint.claims
        return {uid: tuple(each.device for each in one.devices) for uid, one in claims.items()}

    def spec(self, claim: str) -> Any:
        """The CDI spec of a claim."""
        (file,) = (self.folder / "cdi").glob(f"*{claim}.json")
        return json.loads(file.read_text())

    def is_mode_recorded(self, minor: int) -> bool:
        """Whether the GPU's MIG mode is recorded as Carina's."""
        files = MigIntentFiles(self.folder / "mig", self.simulated.state.boot_id)
        intents = files.read(self.simulated.state.gpus[minor].uuid)
        return intents is not None and intents.mode

    def admin_switches(self, minor: int, *, on: bool) -> None:
        """An administrator switches MIG mode; raises NVMLError."""
        pynvml.nvmlDeviceSetMigMode(self.handle(minor), int(on))

    def admin_makes(self, minor: int, profile: int, start: int, size: int) -> GpuInstance:
        """An administrator makes a GPU instance with a compute instance; raises NVMLError."""
        placement = pynvml.c_nvmlGpuInstancePlacement_t(start, size)
        instance = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
            self.handle(minor), profile, ctypes.byref(placement)
        )
        whole = {0: 4, 5: 3, 9: 2, 14: 1}.get(profile, 0)
        pynvml.nvmlGpuInstanceCreateComputeInstance(instance, whole)
        return next(one for one in self.instances(minor) if (one.start, one.size) == (start, size))

    def admin_destroys(self, minor: int, instance_id: int) -> None:
        """An administrator destroys a GPU instance with its compute instance."""
        instance = pynvml.nvmlDeviceGetGpuInstanceById(self.handle(minor), instance_id)
        (whole,) = [
            one.compute_instances[0] for one in self.instances(minor) if one.id == instance_id
        ]
        compute = pynvml.nvmlGpuInstanceGetComputeInstanceById(instance, whole.id)
        pynvml.nvmlComputeInstanceDestroy(compute)
        pynvml.nvmlGpuInstanceDestroy(instance)


@dataclass(frozen=True)
class Expected:
    """What the live claims and the administrator say of the node."""

    claims: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """The devices of the live claims."""
    admins: Mapping[int, tuple[GpuInstance, ...]] = field(default_factory=dict)
    """The administrator's instances by GPU."""
    admin_modes: frozenset[int] = frozenset()
    """GPUs whose MIG mode the administrator switched on."""
    handed_over: frozenset[int] = frozenset()
    """GPUs in MIG mode of which NVML does not tell who switched it on last.

    Carina did, and the administrator made instances, or switched it off and on again.
    """

    def partitions(self, minor: int) -> dict[tuple[int, int], str]:
        """The devices of the claims' partitions on a GPU, by profile and start."""
        names = {name: parse_name(name) for devices in self.claims.values() for name in devices}
        return {
            (name.profile_id, name.start): text
            for text, name in names.items()
            if isinstance(name, PartitionName) and name.minor == minor
        }


def assert_agrees(node: TwoGpus, expected: Expected) -> None:
    """Instances, MIG mode, records, checkpoint and CDI specs are as expected, and nothing else."""
    assert node.claims_recorded() == expected.claims
    assert node.specs() == set(expected.claims)
    for minor, gpu in list(node.simulated.state.gpus.items())[:2]:
        model = node.simulated.hardware.model(minor)
        ids = {profile.index: profile.id for profile in model.mig_profiles}
        slices = {profile.index: profile.slices for profile in model.mig_profiles}
        own = expected.partitions(minor)
        of_admin = expected.admins.get(minor, ())
        sites = {(ids[one.profile], one.start): one for one in gpu.instances}
        for one in of_admin:
            assert sites.pop((ids[one.profile], one.start)) == one
            own.pop((ids[one.profile], one.start), None)
        assert sites.keys() == own.keys()
        for one in sites.values():
            assert [part.size for part in one.compute_instances] == [slices[one.profile]]
        assert node.recorded().get(gpu.uuid, set()) == set(own.values())
        if minor not in expected.handed_over:
            assert gpu.mig_enabled == bool(own or of_admin or minor in expected.admin_modes)
    for claim, devices in expected.claims.items():
        variables = json.dumps(node.spec(claim))
        parts = [name for name in devices if isinstance(parse_name(name), PartitionName)]
        assert variables.count("MIG-") == len(parts)


def leftover_files(node: TwoGpus) -> set[str]:
    """Files that only a cut-off change leaves."""
    files = {file.relative_to(node.folder) for file in node.folder.rglob("*") if file.is_file()}
    kept = {"": (".lock", ".jsonl"), "cdi": (".json",), "mig": (".json",)}
    return {str(file) for file in files if file.suffix not in kept[file.parent.name]}
