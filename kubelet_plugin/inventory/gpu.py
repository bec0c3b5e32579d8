"""The GPUs of a node as they were read: plain values, no I/O.

`kubelet_plugin.nvml.reader` makes these values; slices, claims and CDI specs are decided from them.
Invariants:

- A GPU is identified by minor number, UUID and PCI address, and all three are always known. What a
  driver may be unable to tell is `None`, each attribute for itself.
- An `Inventory` is one observation. GPUs in it are sorted by minor number, so that the same node
  gives the same value.
- No GPU appears twice: it is readable (`gpus`), lost, unreadable, or not known yet.
"""

from dataclasses import dataclass
from typing import TypeAlias

__all__ = [
    "DriverMissing",
    "DriverReady",
    "DriverReplaced",
    "DriverUnusable",
    "Gpu",
    "Inventory",
    "LostGpu",
    "Mig",
    "MigDisabled",
    "MigEnabled",
    "MigLayout",
    "MigPlacement",
    "MigProfile",
    "MigResources",
    "MigUnsupported",
    "NvLink",
    "NvmlFailure",
    "UnknownGpu",
    "UnreadableGpu",
]


@dataclass(frozen=True, slots=True)
class MigResources:
    """What a MIG partition, or all partitions of a GPU together, can hold."""

    multiprocessors: int
    copy_engines: int
    decoders: int
    encoders: int
    jpeg_engines: int
    ofa_engines: int
    memory_mib: int


@dataclass(frozen=True, slots=True, order=True)
class MigPlacement:
    """The memory slices [start, start + size) of a GPU."""

    start: int
    size: int


@dataclass(frozen=True, slots=True)
class MigProfile:
    """One GPU instance profile of a GPU and where it may be placed."""

    name: str
    """As `nvidia-smi mig -lgip` writes it, without the word MIG: "1g.10gb", "1g.10gb+me"."""
    id: int
    """The driver's profile id, e.g. 19 for 1g: it creates instances and is in device names."""
    index: int
    """NVML's `NVML_GPU_INSTANCE_PROFILE_*`: what profile queries take. Not the id."""
    slices: int
    """Compute slices, the 3 of "3g.40gb"."""
    max_instances: int
    resources: MigResources
    placements: tuple[MigPlacement, ...]


@dataclass(frozen=True, slots=True)
class MigLayout:
    """How a GPU can be partitioned; the same whether MIG mode is on or off.

    Profiles are sorted by id. There are none where the driver is too old to tell.
    """

    profiles: tuple[MigProfile, ...]

    @property
    def memory_slices(self) -> int:
        """How many memory slices placements are made of (8 on an A100, 0 with no profile)."""
        return max(
            (p.start + p.size for profile in self.profiles for p in profile.placements), default=0
        )

    @property
    def total(self) -> MigResources:
        """What the partitions of one GPU share: in each dimension, what its largest profile has.

        NVML states no totals; these are the counters that partitions draw from.
        """
        held = [profile.resources for profile in self.profiles]
        return MigResources(
            multiprocessors=max((r.multiprocessors for r in held), default=0),
            copy_engines=max((r.copy_engines for r in held), default=0),
            decoders=max((r.decoders for r in held), default=0),
            encoders=max((r.encoders for r in held), default=0),
            jpeg_engines=max((r.jpeg_engines for r in held), default=0),
            ofa_engines=max((r.ofa_engines for r in held), default=0),
            memory_mib=max((r.memory_mib for r in held), default=0),
        )


@dataclass(frozen=True, slots=True)
class MigUnsupported:
    """The GPU, or its driver, knows no MIG."""


@dataclass(frozen=True, slots=True)
class MigDisabled:
    """MIG mode is off: the GPU is usable as a whole."""

    layout: MigLayout
    toggles_without_reset: bool
    """Hopper and later switch at once; Ampere needs a GPU reset, so nobody else may be using it."""


@dataclass(frozen=True, slots=True)
class MigEnabled:
    """MIG mode is on: CUDA sees MIG instances only, never the whole GPU."""

    layout: MigLayout
    toggles_without_reset: bool


Mig: TypeAlias = MigUnsupported | MigDisabled | MigEnabled


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
    """A GPU that answers."""

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
    nvlink: NvLink | None
    """None without an active link."""
    mig: Mig


@dataclass(frozen=True, slots=True)
class NvmlFailure:
    """An NVML call that did not succeed."""

    function: str
    """The C symbol, e.g. "nvmlDeviceGetMemoryInfo"."""
    code: str
    """The constant's name, e.g. "NVML_ERROR_UNKNOWN"."""

    def __str__(self) -> str:
        return f"{self.function} answered {self.code}"


@dataclass(frozen=True, slots=True)
class LostGpu:
    """A GPU that was seen before and no longer answers: it fell off the bus, until a reset."""

    gpu: Gpu
    """As it was when it last answered."""
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class UnreadableGpu:
    """A GPU that was seen before and cannot be read now; it may be readable at the next look."""

    gpu: Gpu
    """As it was when it last answered."""
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class UnknownGpu:
    """A GPU that NVML lists and that could never be read, so that nobody knows which it is."""

    index: int
    """NVML's index in this observation."""
    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverReady:
    """The driver answers; these are the node's GPUs, perhaps none."""

    gpus: tuple[Gpu, ...]
    lost: tuple[LostGpu, ...] = ()
    unreadable: tuple[UnreadableGpu, ...] = ()
    unknown: tuple[UnknownGpu, ...] = ()


@dataclass(frozen=True, slots=True)
class DriverMissing:
    """No NVIDIA driver yet: the library is not found, or the kernel module is not loaded."""

    reason: str


@dataclass(frozen=True, slots=True)
class DriverUnusable:
    """There is a driver and it refuses: no permission, library and module differ in version, ..."""

    failure: NvmlFailure


@dataclass(frozen=True, slots=True)
class DriverReplaced:
    """Another driver is installed than the one whose library this process has loaded."""

    library: str
    """The file of the other one's library."""


Inventory: TypeAlias = DriverReady | DriverMissing | DriverUnusable | DriverReplaced
