"""A GPU of the node: its constant facts and its variable state. Plain values, no I/O.

`kubelet_plugin.nvml` creates these values; slices, claims and CDI specs are derived from them.
`Gpu` holds facts of the hardware and its driver. `GpuState` holds what may differ at the next read,
including what Carina itself changes. A GPU is identified by minor number, UUID and PCI address,
which are always known. Any other attribute is `None` if the driver does not report it.
"""

from dataclasses import dataclass, field, replace
from enum import Enum
from typing import Final

from kubelet_plugin.inventory.compute_mode import ComputeMode
from kubelet_plugin.inventory.health import HEALTHY, GpuProblems
from kubelet_plugin.inventory.held_mode import HeldMode
from kubelet_plugin.inventory.mig import GpuInstance, MigSite, MigSupport
from kubelet_plugin.inventory.share_guard import UNGUARDED, ShareGuard
from kubelet_plugin.inventory.signals import SILENT, Signals

REPAIR_FAILED: Final = "repair-failed"
"""The word of the taint and the metric."""


class MigMode(Enum):
    """Whether CUDA sees the whole GPU or only its MIG instances."""

    OFF = "off"
    ON = "on"
    """An administrator switched it on."""
    ON_FOR_CLAIMS = "on for claims"
    """Carina switched it on for partitions, and switches it off when there are none any more."""


@dataclass(frozen=True, slots=True)
class NvLink:
    """A GPU's place in an NVLink fabric, by its active links."""

    peers: tuple[int, ...]
    """Minor numbers of this node's GPUs reached over NVLink, directly or through NVSwitches.

    Also of those that do not respond, if they were reached before.
    """
    domain: str
    """The same string for all GPUs that NVLink connects, directly or indirectly, and for no others.

    For a fabric that spans nodes, "<cluster UUID>.<clique id>" from the fabric manager. Otherwise
    the UUID of the connected GPU with the lowest minor number, even if that GPU is lost.
    """


@dataclass(frozen=True, slots=True)
class Gpu:
    """The facts of a GPU."""

    minor: int
    """The N of /dev/nvidiaN; part of the names of the GPU's devices ("gpu-<minor>")."""
    uuid: str
    """"GPU-" and 36 characters."""
    pci_bus_id: str
    """`dddd:bb:dd.f` in lower case, as in sysfs and `resource.kubernetes.io/pciBusID`."""
    product_name: str | None
    brand: str | None
    """"Nvidia", "Tesla", ...: the words NVIDIA's own DRA driver publishes."""
    architecture: str | None
    """"Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", ..."""
    cuda_compute_capability: tuple[int, int] | None
    memory_bytes: int | None
    """Size of the framebuffer; None if CPU and GPU share their memory."""
    driver_version: str | None
    """In the driver's notation ("550.163.01"), which is not a semantic version."""
    cuda_driver_version: tuple[int, int] | None
    """The newest CUDA version that the driver supports."""
    addressing_mode: str | None
    """"HMM", "ATS" or "None", if the driver reports it."""
    numa_node: int | None
    """NUMA node of the PCI function; never -1."""
    pcie_root: str | None
    """`pci<domain>:<bus>` of the root complex, as in `resource.kubernetes.io/pcieRoot`."""
    mig: MigSupport
    memory_reserved_bytes: int = 0
    """What the driver keeps of the framebuffer; 0 also if the driver does not report it."""
    memory_limits: bool = False
    """Whether the driver keeps cgroups within limits of the memory, as tried out of MIG mode."""


@dataclass(frozen=True, slots=True)
class GpuState:
    """The state of a GPU at the last read."""

    mig_mode: MigMode = MigMode.OFF
    instances: tuple[GpuInstance, ...] = ()
    """The GPU instances that Carina did not make, sorted by ID."""
    nvlink: NvLink | None = None
    """None if the GPU has no active link."""
    problems: GpuProblems = HEALTHY
    flapping: float = field(default=0.0, compare=False)
    """How many seconds a GPU that fails again and again has to be well; 0 if it does not."""
    held_mode: HeldMode | None = None
    """The switch of MIG mode that NVML refuses, if the mode is not as it would be after it."""
    repair_failed: str | None = None
    """Why claims cannot be prepared: what a repair could not restore, in a word."""
    compute_mode: ComputeMode = ComputeMode.DEFAULT
    """DEFAULT also if the driver does not report it."""
    guard: ShareGuard = UNGUARDED
    """What carina-sharing does for shares of the GPU."""
    signals: Signals = field(default=SILENT, compare=False)
    """What the problems follow from. They change every few seconds, so states do not differ by
    them."""
    binding: str = field(default="", compare=False)
    """Is another one after the node has booted, or the driver was bound to the GPU again."""

    @property
    def boot(self) -> str:
        """The boot of `binding`."""
        return self.binding.partition("/")[0]

    def at(self, site: MigSite) -> "GpuState":
        """Returns the state as it concerns a partition there."""
        problems = frozenset(
            problem
            for problem in self.problems
            if problem.site is None or problem.site.placement.overlaps(site.placement)
        )
        return self if problems == self.problems else replace(self, problems=problems)


@dataclass(frozen=True, slots=True)
class ObservedGpu:
    """A GPU as it was last read. If it does not respond, these are its last known values."""

    gpu: Gpu
    state: GpuState
