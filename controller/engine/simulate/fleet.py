"""Nodes with GPUs, and the devices that the Carina kubelet plugin publishes of them."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from fractions import Fraction
from typing import Final, assert_never

from carina_dra.allocator.node import Node
from carina_dra.least_share import (
    DEFAULT_LEAST_SHARE,
    LEAST_SHARE,
    least_amount,
    parse_least_share,
)
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    CapacityRange,
    CapacityRequestPolicy,
    CelSelector,
    Counter,
    CounterSet,
    Device,
    DeviceAttribute,
    DeviceCapacity,
    DeviceClass,
    DeviceClassSpec,
    DeviceCounterConsumption,
    DeviceSelector,
    IntAttribute,
    ObjectMeta,
    OnNode,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    StringAttribute,
    ValidRange,
    limits,
)
from controller.engine.files.amount import Bytes, MilliCpu
from controller.engine.model.node import ClusterNode, Taint

DRIVER: Final = "gpu.carina.dev"
GPU_CLASS: Final = DRIVER
"""The class of whole GPUs; those of other kinds are below it, such as mig.gpu.carina.dev."""
_EXTENDED_RESOURCE: Final = "nvidia.com/gpu"
"""With which pods ask for whole GPUs without a claim."""
HOSTNAME: Final = "kubernetes.io/hostname"
_NUMA_NODES: Final = 2
_CORES: Final = 100
_MEMORY_SLICES: Final = 8
_GIB: Final = 2**30
_MIB: Final = 2**20


class GpuUse(StrEnum):
    """A way to use a GPU. Those that use the same one exclude each other."""

    GPU = "gpu"
    """The whole GPU."""
    MIG = "mig"
    """A MIG partition, at each of its places."""
    SHARE = "share"
    """Any part of its memory and cores."""

    @property
    def device_class(self) -> str:
        """The name of the class of such devices."""
        return GPU_CLASS if self is GpuUse.GPU else f"{self}.{GPU_CLASS}"


@dataclass(frozen=True, slots=True)
class _Profile:
    """A MIG profile, as A100, H100, H200 and B200 have them."""

    id: int
    """NVML's, which is part of device names."""
    slices: int
    """Compute slices, of 7."""
    size: int
    """Memory slices, of 8."""
    starts: range


_PROFILES: Final = (
    _Profile(19, 1, 1, range(7)),
    _Profile(15, 1, 2, range(0, 8, 2)),
    _Profile(14, 2, 2, range(0, 6, 2)),
    _Profile(9, 3, 4, range(0, 8, 4)),
    _Profile(5, 4, 4, range(1)),
    _Profile(0, 7, 8, range(1)),
)
_COMPUTE_SLICES: Final = 7


@dataclass(frozen=True, slots=True)
class NodeTemplate:
    """Nodes that are alike; their names end with their number if there are several."""

    name: str
    cpu: MilliCpu
    memory: Bytes
    count: int = 1
    pods: int = 110
    gpus: int = 0
    """How many GPUs each has."""
    gpu_memory: Bytes = 80 * _GIB
    product: str = "GPU"
    """The product name of the GPUs, on which selectors can select."""
    devices: tuple[GpuUse, ...] = (GpuUse.GPU,)
    """What is published of each GPU."""
    least_share: Fraction = DEFAULT_LEAST_SHARE
    """The least part of its GPU that a share has, and that a partition or a share counts."""
    labels: Mapping[str, str] = field(default_factory=dict)
    domains: Mapping[str, int] = field(default_factory=dict)
    """By the key of a label: how many consecutive nodes have the same value of it."""
    taints: tuple[Taint, ...] = ()

    def __post_init__(self) -> None:
        """Checks the numbers."""
        if self.count < 1:
            raise ValueError(f"count is {self.count}; it must be at least 1")
        if self.gpus < 0:
            raise ValueError(f"gpus is {self.gpus}; it must not be negative")
        try:
            parse_least_share(str(self.least_share))
        except ValueError as error:
            raise ValueError(f"leastShare is {self.least_share}; it {error}") from None
        for key, size in self.domains.items():
            if size < 1:
                raise ValueError(f"domains[{key}] is {size}; it must be at least 1")

    def nodes(self) -> Iterator[ClusterNode]:
        """The nodes."""
        for index in range(self.count):
            name = f"{self.name}-{index}" if self.count > 1 else self.name
            domains = {key: f"{self.name}-{index // size}" for key, size in self.domains.items()}
            yield ClusterNode(
                node=Node(name, {HOSTNAME: name, **domains, **self.labels}),
                cpu=self.cpu,
                memory=self.memory,
                pods=self.pods,
                taints=self.taints,
            )

    def slices(self, node: str) -> tuple[ResourceSlice, ...]:
        """The slices of one of the nodes."""
        sets = [_counter_set(gpu) for gpu in range(self.gpus)] if self._counts else []
        devices = [device for gpu in range(self.gpus) for device in self._devices(node, gpu)]
        return pool(node, devices, sets)

    @property
    def _counts(self) -> bool:
        """Whether counters keep the kinds apart; a single one needs none."""
        return self.devices != (GpuUse.GPU,)

    def _devices(self, node: str, gpu: int) -> Iterator[Device]:
        for kind in self.devices:
            match kind:
                case GpuUse.GPU:
                    yield self._device(node, gpu, kind, f"gpu-{gpu}", self._whole(gpu))
                case GpuUse.SHARE:
                    yield self._share(node, gpu)
                case GpuUse.MIG:
                    yield from self._partitions(node, gpu)
                case _:
                    assert_never(kind)

    def _device(
        self,
        node: str,
        gpu: int,
        kind: GpuUse,
        name: str,
        consumed: tuple[DeviceCounterConsumption, ...],
    ) -> Device:
        attributes: dict[str, DeviceAttribute] = {
            LEAST_SHARE: StringAttribute(str(self.least_share)),
            "productName": StringAttribute(self.product),
            "resource.kubernetes.io/numaNode": IntAttribute(gpu * _NUMA_NODES // self.gpus),
            "type": StringAttribute(str(kind)),
            "uuid": StringAttribute(f"GPU-{node}-{gpu}"[-limits.ATTRIBUTE_TEXT_BYTES :]),
        }
        memory = DeviceCapacity(Quantity.of(self.gpu_memory))
        return Device(name, attributes, {"memory": memory}, consumed)

    def _whole(self, gpu: int) -> tuple[DeviceCounterConsumption, ...]:
        counted = _counter_set(gpu)
        return (DeviceCounterConsumption(counted.name, counted.counters),) if self._counts else ()

    def _share(self, node: str, gpu: int) -> Device:
        whole = self._device(node, gpu, GpuUse.SHARE, f"gpu-{gpu}-share", self._whole(gpu))
        capacity = {
            "cores": _divisible(_CORES, self.least_share, step=1),
            "memory": _divisible(self.gpu_memory // _MIB, self.least_share, step=_MIB),
        }
        return Device(
            whole.name,
            whole.attributes,
            capacity,
            whole.consumes_counters,
            allow_multiple_allocations=True,
        )

    def _partitions(self, node: str, gpu: int) -> Iterator[Device]:
        for profile in _PROFILES:
            size = self.gpu_memory * profile.size // _MEMORY_SLICES
            text = f"{profile.slices}g.{(size + _GIB // 2) // _GIB}gb"
            for start in profile.starts:
                name = f"gpu-{gpu}-mig-{text.replace('.', '')}-{profile.id}-{start}"
                consumed = DeviceCounterConsumption(
                    f"gpu-{gpu}", _counters(profile.slices, range(start, start + profile.size))
                )
                device = self._device(node, gpu, GpuUse.MIG, name, (consumed,))
                parent = device.attributes["uuid"]
                attributes = {k: v for k, v in device.attributes.items() if k != "uuid"}
                attributes |= {"parentUUID": parent, "profile": StringAttribute(text)}
                memory = {"memory": DeviceCapacity(Quantity.of(size))}
                yield Device(name, attributes, memory, (consumed,))


def device_classes() -> tuple[DeviceClass, ...]:
    """The classes of the kinds, as `deploy/deviceclass.yaml` has them."""
    return tuple(
        DeviceClass(
            ObjectMeta(name=kind.device_class),
            DeviceClassSpec(
                (
                    DeviceSelector(
                        CelSelector(
                            f"device.driver == '{DRIVER}' && "
                            f"device.attributes['{DRIVER}'].type == '{kind}'"
                        )
                    ),
                ),
                extended_resource_name=_EXTENDED_RESOURCE if kind is GpuUse.GPU else None,
            ),
        )
        for kind in GpuUse
    )


def pool(
    node: str, devices: Sequence[Device], sets: Sequence[CounterSet] = ()
) -> tuple[ResourceSlice, ...]:
    """The slices of a node's pool, each with as much as the API allows."""
    size = limits.DEVICES_PER_SLICE_WITH_ADVANCED_FEATURES if sets else limits.DEVICES_PER_SLICE
    per_slice = limits.COUNTER_SETS_PER_SLICE
    contents: list[tuple[tuple[Device, ...], tuple[CounterSet, ...]]] = [
        ((), tuple(sets[at : at + per_slice])) for at in range(0, len(sets), per_slice)
    ]
    contents += [(tuple(devices[at : at + size]), ()) for at in range(0, len(devices), size)]
    of_pool = ResourcePool(name=node, generation=1, resource_slice_count=len(contents))
    return tuple(
        ResourceSlice(
            ObjectMeta(name=f"{index:05}-{DRIVER}-{node}"),
            spec=ResourceSliceSpec(
                driver=DRIVER,
                pool=of_pool,
                nodes=OnNode(node),
                devices=content,
                shared_counters=counted,
            ),
        )
        for index, (content, counted) in enumerate(contents)
    )


def _counter_set(gpu: int) -> CounterSet:
    return CounterSet(f"gpu-{gpu}", _counters(_COMPUTE_SLICES, range(_MEMORY_SLICES)))


def _counters(compute_slices: int, memory_slices: range) -> Mapping[str, Counter]:
    return {
        "compute-slices": Counter(Quantity.of(compute_slices)),
        **{f"memory-slice-{index}": Counter(Quantity.of(1)) for index in memory_slices},
    }


def _divisible(steps: int, least_share: Fraction, *, step: int) -> DeviceCapacity:
    """A capacity of which a request gets any number of steps from the least share on.

    It gets a tenth, or the least share if that is more, if it names no amount.
    """
    least = least_amount(steps, least_share)
    valid = CapacityRange(
        min=Quantity.of(least * step), max=Quantity.of(steps * step), step=Quantity.of(step)
    )
    default = Quantity.of(max(least, steps // 10) * step)
    policy = CapacityRequestPolicy(default=default, valid=ValidRange(valid))
    return DeviceCapacity(Quantity.of(steps * step), policy)
