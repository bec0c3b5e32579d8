"""The simulated products with MIG, as the plugin knows them."""

from kubelet_plugin.inventory.gpu import Gpu, GpuState, MigMode, ObservedGpu
from kubelet_plugin.inventory.mig import (
    ComputeInstance,
    GpuInstance,
    MigLayout,
    MigPlacement,
    MigProfile,
    MigResources,
    MigSite,
    MigSupported,
)
from simulation.nvml import state as simulated
from simulation.nvml.hardware import GpuModel, load_profile
from tests.samples.gpus import gpu

_NODES = ("dgx-a100", "dgx-h100", "hgx-h200-sxm", "hgx-h200-nvl", "b200", "mixed")
MODELS = {
    name: model
    for node in _NODES
    for name, model in load_profile(node).models.items()
    if model.mig_profiles
}
"""By the name of their file."""


def layout(model: GpuModel) -> MigLayout:
    """What NVML says of a product's partitions."""
    profiles = (
        MigProfile(
            name=profile.name,
            id=profile.id,
            index=profile.index,
            slices=profile.slices,
            max_instances=profile.instances,
            resources=MigResources(
                multiprocessors=profile.multiprocessors,
                copy_engines=profile.copy_engines,
                decoders=profile.decoders,
                encoders=profile.encoders,
                jpeg_engines=profile.jpeg_engines,
                ofa_engines=profile.ofa_engines,
                memory_mib=profile.memory_mib,
            ),
            placements=tuple(MigPlacement(start, profile.size) for start in profile.starts),
        )
        for profile in model.mig_profiles
    )
    return MigLayout(tuple(sorted(profiles, key=lambda profile: profile.id)))


def gpu_of(model: GpuModel, minor: int = 0) -> Gpu:
    """A GPU of the product, whose MIG mode changes without a reset."""
    return gpu(minor, product_name=model.name, mig=MigSupported(layout(model), True))


def observed_with(
    model: GpuModel, instances: tuple[simulated.GpuInstance, ...], minor: int = 0
) -> ObservedGpu:
    """A GPU of the product with these instances of an administrator, none of them divided."""
    profiles = {profile.index: profile for profile in layout(model).profiles}
    found = tuple(
        GpuInstance(
            one.id,
            MigSite(profiles[one.profile].id, MigPlacement(one.start, one.size)),
            (ComputeInstance(0, profiles[one.profile].slices, f"MIG-{minor}-{one.id}"),),
        )
        for one in instances
    )
    mode = MigMode.ON if found else MigMode.OFF
    return ObservedGpu(gpu_of(model, minor), GpuState(mode, found))
