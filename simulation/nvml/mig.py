"""The rules by which a GPU is partitioned. Pure.

A GPU instance occupies memory slices and takes compute slices and engines; a compute instance
occupies compute slices of its GPU instance. What exists never overlaps, no profile has more
instances than it allows, and nothing is given out that the GPU does not have.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from uuid import UUID, uuid5

from simulation.nvml.hardware import GpuModel, MigProfile
from simulation.nvml.state import ComputeInstance, GpuInstance

__all__ = [
    "ComputeProfile",
    "NoRoomError",
    "NoSuchPlacementError",
    "compute_profiles",
    "create",
    "create_compute",
    "device_uuid",
    "fitting",
    "fitting_compute",
    "profile_by_id",
    "profile_by_index",
    "remaining",
]

_SIZES = {0: 1, 1: 2, 2: 3, 3: 4, 4: 7, 7: 1}
"""Compute slices by NVML_COMPUTE_INSTANCE_PROFILE_*; 7 is a second profile of one slice (REV1)."""
_ENGINES = (
    "slices",
    "multiprocessors",
    "copy_engines",
    "decoders",
    "encoders",
    "jpeg_engines",
    "ofa_engines",
    "memory_mib",
)


@dataclass(frozen=True, slots=True)
class ComputeProfile:
    """A row of `nvidia-smi mig -lcip`. Index and id are the same number."""

    index: int
    name: str
    slices: int
    instances: int
    multiprocessors: int
    starts: tuple[int, ...]


class NoRoomError(Exception):
    """The instance does not fit beside those that exist."""


class NoSuchPlacementError(Exception):
    """The profile cannot be placed there."""


def profile_by_id(model: GpuModel, profile_id: int) -> MigProfile | None:
    """The GPU instance profile with this id."""
    return next((one for one in model.mig_profiles if one.id == profile_id), None)


def profile_by_index(model: GpuModel, index: int) -> MigProfile | None:
    """The GPU instance profile with this NVML_GPU_INSTANCE_PROFILE_*."""
    return next((one for one in model.mig_profiles if one.index == index), None)


def fitting(
    model: GpuModel, instances: Sequence[GpuInstance], profile: MigProfile
) -> Iterator[int]:
    """The placements where a further instance of the profile fits."""
    taken = {place for one in instances for place in range(one.start, one.start + one.size)}
    if not _within(model, instances, profile):
        return
    for start in profile.starts:
        if taken.isdisjoint(range(start, start + profile.size)):
            yield start


def remaining(model: GpuModel, instances: Sequence[GpuInstance], profile: MigProfile) -> int:
    """How many more instances of the profile can be created."""
    starts = list(fitting(model, instances, profile))
    if not starts:
        return 0
    return 1 + remaining(model, create(model, instances, profile, starts[0])[1], profile)


def create(
    model: GpuModel, instances: Sequence[GpuInstance], profile: MigProfile, start: int | None
) -> tuple[GpuInstance, tuple[GpuInstance, ...]]:
    """A new instance, and all instances including it; without `start`, in the last free placement.

    Raises NoSuchPlacementError and NoRoomError.
    """
    if start is not None and start not in profile.starts:
        raise NoSuchPlacementError
    free = list(fitting(model, instances, profile))
    if not free or (start is not None and start not in free):
        raise NoRoomError
    start = free[-1] if start is None else start
    created = GpuInstance(
        id=_instance_id(start, profile.size), profile=profile.index, start=start, size=profile.size
    )
    return created, tuple(sorted((*instances, created), key=lambda one: one.id))


def compute_profiles(profile: MigProfile) -> tuple[ComputeProfile, ...]:
    """The compute instance profiles of a GPU instance profile."""
    per_slice = profile.multiprocessors // profile.slices
    memory = profile.name.partition(".")[2]
    found = []
    for index, slices in _SIZES.items():
        whole = slices == profile.slices
        if slices > profile.slices or (slices == 3 and profile.slices == 4):
            continue
        step = {3: 4}.get(slices, slices)
        starts = tuple(range(0, profile.slices - slices + 1, step))
        found.append(
            ComputeProfile(
                index=index,
                name=profile.name if whole else f"{slices}c.{profile.slices}g.{memory}",
                slices=slices,
                instances=len(starts),
                multiprocessors=profile.multiprocessors if whole else per_slice * slices,
                starts=starts,
            )
        )
    return tuple(found)


def fitting_compute(instance: GpuInstance, profile: ComputeProfile) -> Iterator[int]:
    """The placements where a further compute instance of the profile fits."""
    taken = {
        place
        for one in instance.compute_instances
        for place in range(one.start, one.start + one.size)
    }
    for start in profile.starts:
        if taken.isdisjoint(range(start, start + profile.slices)):
            yield start


def create_compute(
    instance: GpuInstance, profile: ComputeProfile, start: int | None
) -> tuple[ComputeInstance, GpuInstance]:
    """A new compute instance, and its GPU instance including it.

    Raises NoSuchPlacementError and NoRoomError.
    """
    if start is not None and start not in profile.starts:
        raise NoSuchPlacementError
    free = list(fitting_compute(instance, profile))
    if not free or (start is not None and start not in free):
        raise NoRoomError
    used = {one.id for one in instance.compute_instances}
    created = ComputeInstance(
        id=next(number for number in range(len(used) + 1) if number not in used),
        profile=profile.index,
        start=free[0] if start is None else start,
        size=profile.slices,
    )
    everything = sorted((*instance.compute_instances, created), key=lambda one: one.id)
    return created, replace(instance, compute_instances=tuple(everything))


def device_uuid(gpu_uuid: str, gpu_instance: int, compute_instance: int) -> str:
    """The UUID of a MIG device; it follows from the GPU and the ids of the instances."""
    return f"MIG-{uuid5(UUID(gpu_uuid.removeprefix('GPU-')), f'{gpu_instance}/{compute_instance}')}"


def _within(model: GpuModel, instances: Sequence[GpuInstance], profile: MigProfile) -> bool:
    """Whether a further instance is within the profile's limit and the GPU's resources."""
    existing = [profile_by_index(model, one.profile) for one in instances]
    profiles = [one for one in existing if one is not None] + [profile]
    if sum(one.index == profile.index for one in profiles) > profile.instances:
        return False
    return all(
        sum(getattr(one, engine) for one in profiles)
        <= max(getattr(one, engine) for one in model.mig_profiles)
        for engine in _ENGINES
    )


def _instance_id(start: int, size: int) -> int:
    """The driver's numbering: the whole GPU is 0, its halves 1 and 2, quarters 3 to 6, ..."""
    return 8 // size - 1 + start // size
