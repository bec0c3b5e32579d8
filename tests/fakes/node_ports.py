"""The ports of a simulated node, as the plugin composes them."""

from collections.abc import Callable, Collection
from pathlib import Path
from time import monotonic

from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.device_metadata.directory import MetadataDirectory
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.compute_policy import ComputePolicy
from kubelet_plugin.prepare.daemon_records import DaemonRecords
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.held_modes import HeldModes
from kubelet_plugin.prepare.limit_records import LimitRecords
from kubelet_plugin.prepare.memory_limits import MemoryLimits
from kubelet_plugin.prepare.metadata_files import MetadataFiles
from kubelet_plugin.prepare.mig_instances import MigInstances
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.mig_mode import MigModes
from kubelet_plugin.prepare.mps_daemons import MpsDaemons
from kubelet_plugin.prepare.ports import NodePorts
from kubelet_plugin.prepare.time_slices import TimeSlices
from kubelet_plugin.sharing.supervision import Supervision
from tests.samples.driver import installed_at

DRIVER = "gpu.carina.dev"


def node_ports(
    cdi_specs: CdiSpecs,
    *,
    root: Path,
    intents: Path,
    boot_id: str,
    metadata: Path | None = None,
    of_nvidia: Callable[[], Collection[str]] = frozenset,
    notes: DriftNotes | None = None,
    cgroup_root: Path | None = None,
    seen_pods: Callable[[str], Collection[str]] = lambda _: (),
    supervision: Supervision | None = None,
) -> NodePorts:
    """The ports that make things on the node below `root`, and record them in `intents`.

    `metadata` is the folder of device metadata, by default one beside `intents`. The host's cgroups
    are in `cgroup_root`, by default in sys/fs/cgroup below `root`. `supervision` is what
    carina-sharing says, by default nothing.
    """
    host = HostPaths(root)
    library = NvmlLibrary(host.gpu_addresses)
    files = MigIntentFiles(intents, boot_id)
    return NodePorts(
        mig_modes=MigModes(library, host, files, HeldModes(clock=monotonic), notes=notes),
        mig_instances=MigInstances(library, host, files, of_nvidia=of_nvidia, notes=notes),
        time_slices=TimeSlices(library, ComputePolicy(installed_at(root)), files, clock=monotonic),
        memory_limits=MemoryLimits(
            library,
            LimitRecords(intents.with_name("memory-limits"), boot_id),
            cgroup_root or root / "sys/fs/cgroup",
            seen_pods=seen_pods,
            notes=notes,
        ),
        mps_daemons=MpsDaemons(
            DaemonRecords(intents.with_name("mps-daemons"), boot_id),
            intents.with_name("mps"),
            supervision or Supervision(),
        ),
        metadata_files=MetadataFiles(
            PublishSettings(DRIVER),
            MetadataDirectory(metadata or intents.with_name("device-metadata")),
            notes=notes,
        ),
        cdi_specs=cdi_specs,
    )
