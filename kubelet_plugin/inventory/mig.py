"""How a GPU can be partitioned with MIG (facts of the hardware), and how it is partitioned."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never


@dataclass(frozen=True, slots=True)
class MigResources:
    """The resources of a MIG partition, or of all partitions of a GPU together."""

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

    def overlaps(self, other: "MigPlacement") -> bool:
        """Returns whether both have a memory slice."""
        return self.start < other.start + other.size and other.start < self.start + self.size


@dataclass(frozen=True, slots=True)
class MigProfile:
    """A GPU instance profile of a GPU, and its possible placements."""

    name: str
    """As in `nvidia-smi mig -lgip`, without the prefix MIG: "1g.10gb", "1g.10gb+me"."""
    id: int
    """The driver's profile ID, such as 19 for 1g: used to create instances and in device names."""
    index: int
    """NVML's `NVML_GPU_INSTANCE_PROFILE_*`, used to query profiles; not the ID."""
    slices: int
    """Number of compute slices: the 3 of "3g.40gb"."""
    max_instances: int
    resources: MigResources
    placements: tuple[MigPlacement, ...]

    @property
    def size(self) -> tuple[int, int, int]:
        """Memory in MiB, multiprocessors and ID: sorts profiles from small to large."""
        return self.resources.memory_mib, self.resources.multiprocessors, self.id


@dataclass(frozen=True, slots=True)
class MigLayout:
    """How a GPU can be partitioned; the same whether MIG mode is on or off.

    Profiles are sorted by ID. There are none if the driver is too old to report them.
    """

    profiles: tuple[MigProfile, ...]

    def profile(self, profile_id: int) -> MigProfile | None:
        """Returns the profile with this ID."""
        return next((profile for profile in self.profiles if profile.id == profile_id), None)

    @property
    def memory_slices(self) -> int:
        """Number of memory slices: 8 on an A100, 0 without profiles."""
        return max(
            (p.start + p.size for profile in self.profiles for p in profile.placements), default=0
        )

    @property
    def total(self) -> MigResources:
        """The resources that all partitions of a GPU share: the maximum over its profiles.

        NVML reports no totals. Partitions consume from counters with these values.
        """
        resources = [profile.resources for profile in self.profiles]
        return MigResources(
            multiprocessors=max((r.multiprocessors for r in resources), default=0),
            copy_engines=max((r.copy_engines for r in resources), default=0),
            decoders=max((r.decoders for r in resources), default=0),
            encoders=max((r.encoders for r in resources), default=0),
            jpeg_engines=max((r.jpeg_engines for r in resources), default=0),
            ofa_engines=max((r.ofa_engines for r in resources), default=0),
            memory_mib=max((r.memory_mib for r in resources), default=0),
        )


@dataclass(frozen=True, slots=True)
class MigUnsupported:
    """The GPU or its driver does not support MIG, or a hypervisor allows no partitions."""


@dataclass(frozen=True, slots=True)
class MigSupported:
    """The GPU can be partitioned."""

    layout: MigLayout
    toggles_without_reset: bool
    """Whether MIG mode changes at once (Hopper and later), without a GPU reset (Ampere)."""


MigSupport: TypeAlias = MigUnsupported | MigSupported


@dataclass(frozen=True, slots=True)
class MigSite:
    """A profile at a placement: what identifies a GPU instance of a GPU."""

    profile_id: int
    placement: MigPlacement


@dataclass(frozen=True, slots=True)
class ComputeInstance:
    """A compute instance of a GPU instance; CUDA sees it as a MIG device."""

    id: int
    slices: int
    """Number of compute slices."""
    uuid: str
    """Of the MIG device: "MIG-" and 36 characters."""


@dataclass(frozen=True, slots=True)
class GpuInstance:
    """A GPU instance that exists: memory slices of a GPU with its engines."""

    id: int
    site: MigSite
    compute_instances: tuple[ComputeInstance, ...]
    """Sorted by ID. Those without a MIG device, because they are being made, are left out."""

    def undivided(self, profile: MigProfile) -> ComputeInstance | None:
        """Returns the compute instance that has all compute slices of the profile, if there is one.

        An administrator may divide a GPU instance among several compute instances.
        """
        match self.compute_instances:
            case (compute,) if compute.slices == profile.slices:
                return compute
            case _:
                return None


def as_it_is(mig: MigSupport, instances: Iterable[GpuInstance]) -> MigSupport:
    """Returns what is possible where partitions are not Carina's to make: those that exist.

    A hypervisor decides how a vGPU is partitioned, so that its guest cannot.
    """
    match mig:
        case MigSupported(layout, at_once):
            sites = {instance.site for instance in instances}
            left = ((profile, _placements(profile, sites)) for profile in layout.profiles)
            profiles = tuple(replace(profile, placements=at) for profile, at in left if at)
            return MigSupported(MigLayout(profiles), at_once) if profiles else MigUnsupported()
        case MigUnsupported():
            return mig
    assert_never(mig)


def _placements(profile: MigProfile, sites: Collection[MigSite]) -> tuple[MigPlacement, ...]:
    return tuple(at for at in profile.placements if MigSite(profile.id, at) in sites)
