"""A GPU of the node: what never changes apart from what does. Plain values, no I/O.

`kubelet_plugin.nvml` makes these values; slices, claims and CDI specs are decided from them.
`Gpu` holds facts of the hardware and its driver. `GpuState` holds what may be another at the next
reading, also by what Carina itself does. A GPU is identified by minor number, UUID and PCI address,
and all three are always known. What a driver may be unable to report is `None`, each attribute for
itself.
"""

from dataclasses import dataclass
from enum import Enum

from kubelet_plugin.inventory.health import HEALTHY, Problems
from kubelet_plugin.inventory.mig import MigSupport


class MigMode(Enum):
    """Whether CUDA sees the whole GPU or its MIG instances only."""

    OFF = "off"
    ON = "on"


@dataclass(frozen=True, slots=True)
class NvLink:
    """A GPU's place in an NVLink fabric, by its active links."""

    peers: tuple[int, ...]
    """Minor numbers of this node's GPUs reached over NVLink, directly or through NVSwitches."""
    domain: str
    """The same string for all GPUs that NVLink connects, in one hop or several, and for no others.

    For a fabric that spans nodes "<cluster UUID>.<clique id>", as the fabric manager says. Within a
    node the UUID of the connected GPU with the lowest minor number (a lost GPU included).
    """


@dataclass(frozen=True, slots=True)
class Gpu:
    """The facts of a GPU."""

    minor: int
    """The N of /dev/nvidiaN; names the GPU's devices ("gpu-<minor>")."""
    uuid: str
    """"GPU-" and 36 characters."""
    pci_bus_id: str
    """`dddd:bb:dd.f` in lower case, as sysfs and `resource.kubernetes.io/pciBusID` write it."""
    product_name: str | None
    brand: str | None
    """"Nvidia", "Tesla", ...: the words NVIDIA's own DRA driver publishes."""
    architecture: str | None
    """"Turing", "Ampere", "Ada Lovelace", "Hopper", "Blackwell", ..."""
    cuda_compute_capability: tuple[int, int] | None
    memory_bytes: int | None
    """The framebuffer's size; None where CPU and GPU share one memory."""
    driver_version: str | None
    """As the driver writes it ("550.163.01"), which is not semantic versioning."""
    cuda_driver_version: tuple[int, int] | None
    """The newest CUDA that the driver serves."""
    addressing_mode: str | None
    """"HMM", "ATS" or "None", where the driver tells."""
    numa_node: int | None
    """Of the PCI function; never -1."""
    pcie_root: str | None
    """`pci<domain>:<bus>` of the root complex, as in `resource.kubernetes.io/pcieRoot`."""
    mig: MigSupport


@dataclass(frozen=True, slots=True)
class GpuState:
    """How a GPU is at the moment."""

    mig_mode: MigMode = MigMode.OFF
    nvlink: NvLink | None = None
    """None without an active link."""
    problems: Problems = HEALTHY


@dataclass(frozen=True, slots=True)
class ObservedGpu:
    """A GPU as it was last read. Facts and state of one that does not answer are its last ones."""

    gpu: Gpu
    state: GpuState
