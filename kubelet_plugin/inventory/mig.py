"""How a GPU can be partitioned (MIG): facts of the hardware and its driver."""

from dataclasses import dataclass
from typing import TypeAlias


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
    """The GPU, or its driver, has no MIG."""


@dataclass(frozen=True, slots=True)
class MigSupported:
    """The GPU can be partitioned."""

    layout: MigLayout
    toggles_without_reset: bool
    """Hopper and later switch MIG mode at once; Ampere needs a GPU reset, so no other users."""


MigSupport: TypeAlias = MigUnsupported | MigSupported
