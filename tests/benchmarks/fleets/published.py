"""Devices with everything that the node plugin publishes of them, to measure loading.

The simulated node has the GPUs of a DGX H100. Identities differ from node to node.
"""

import tempfile
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

from carina_dra.resource import encode
from kubelet_plugin.devices.counters import counter_set
from kubelet_plugin.devices.device import GpuDevice, of_kinds
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.partition import Partition
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.inventory.mig import MigUnsupported
from tests.benchmarks.claims import ATTRIBUTES, NUMA, has_memory, match, pod, request
from tests.benchmarks.fleet import DRIVER, Asking, Fleet, Goals, Object, Pod, Question, Scenario
from tests.benchmarks.fleets import mig
from tests.benchmarks.pool import nodes, slices_of
from tests.samples.golden_slices import simulated_devices

_PROFILE: Final = "dgx-h100"
_MEDIA: Final = "+me"
"""Ends the name of the profile with media engines, which is not counted among the 19 devices."""


def whole(number: int) -> Fleet:
    """Eight whole GPUs a node without MIG, so that each has a single counter."""
    gpus = (replace(each, gpu=replace(each.gpu, mig=MigUnsupported())) for each in _gpus())
    return _fleet(number, tuple(gpus), partitioned=False)


def whole_with_mig(number: int) -> Fleet:
    """Eight whole GPUs a node with MIG, so that each has a counter for all that it consists of."""
    return _fleet(number, _gpus(), partitioned=False)


def partitioned(number: int) -> Fleet:
    """Eight GPUs a node, each with its MIG placements and itself as devices."""
    return _fleet(number, _gpus(), partitioned=True)


def _fleet(number: int, gpus: tuple[GpuDevice, ...], *, partitioned: bool) -> Fleet:
    def slices() -> Iterator[Object]:
        sets = [encode(counter_set(gpu.gpu, gpu.state)) for gpu in gpus]
        for node in range(number):
            devices = [
                device for gpu in gpus for device in _devices(gpu, node, partitioned=partitioned)
            ]
            yield from slices_of(node, devices, sets)

    return Fleet(nodes(number), slices, lambda: ())


@cache
def _simulated() -> tuple[GpuDevice, ...]:
    with tempfile.TemporaryDirectory() as directory:
        return simulated_devices(_PROFILE, Path(directory))


def _gpus() -> tuple[GpuDevice, ...]:
    """Without their monitors, which are as many devices again."""
    return of_kinds(_simulated(), {DeviceKind.GPU})


@cache
def _partitions(minor: int) -> tuple[GpuDevice, ...]:
    partitions = (device for device in _simulated() if isinstance(device, Partition))
    return tuple(
        partition
        for partition in partitions
        if partition.gpu.minor == minor and not partition.profile.name.endswith(_MEDIA)
    )


@cache
def _published(device: GpuDevice) -> Mapping[str, Any]:
    return encode(device.published(PublishSettings(DRIVER)))


def _devices(gpu: GpuDevice, node: int, *, partitioned: bool) -> Iterator[Object]:
    uuid = {"string": f"GPU-{node:08x}-0000-4000-8000-{gpu.gpu.minor:012x}"}
    yield _of_gpu(_published(gpu), "uuid", uuid)
    if partitioned:
        for partition in _partitions(gpu.gpu.minor):
            yield _of_gpu(_published(partition), "parentUUID", uuid)


def _of_gpu(published: Mapping[str, Any], attribute: str, uuid: Object) -> Object:
    return {**published, "attributes": {**published["attributes"], attribute: uuid}}


def _pair(gib: int) -> Pod:
    return pod(
        request(f'{ATTRIBUTES}.type == "gpu" && {has_memory(f"{gib}Gi")}', 2),
        constraints=(match(NUMA),),
    )


def _gpu(_: int) -> Pod:
    return pod(request(f'{ATTRIBUTES}.type == "gpu"'))


_PAIRS: Final = (
    Question("2 GPUs of a NUMA node, new kind", Asking.NEW, lambda number: _pair(20 + number), 30),
    Question("2 GPUs of a NUMA node, like", Asking.LIKE, lambda _: _pair(20), 1, times=300),
)
WHOLE: Final = Scenario(
    name="published",
    about="{nodes} nodes of 8 GPUs without MIG as the plugin publishes them, all free",
    nodes=5000,
    make=whole,
    one=_gpu,
    questions=_PAIRS,
    goals=Goals(load_s=1.5),
)
WHOLE_WITH_MIG: Final = Scenario(
    name="published-h100",
    about="{nodes} nodes of 8 H100 as the plugin publishes them, with 13 counters each, all free",
    nodes=5000,
    make=whole_with_mig,
    one=_gpu,
    questions=_PAIRS,
    goals=Goals(load_s=1.5),
)
PARTITIONED: Final = Scenario(
    name="published-mig",
    about="{nodes} nodes of 8 H100 as the plugin publishes them, 19 devices each, all free",
    nodes=1000,
    make=partitioned,
    one=mig.one,
    questions=(
        Question(
            "1 partition, new kind",
            Asking.NEW,
            lambda number: mig.partition(mig.profile_of(number), kind=1 + number),
            50,
        ),
        Question("1 partition, like", Asking.LIKE, mig.one, 1, times=300),
    ),
    nodes_in_tests=2,
    goals=Goals(load_s=8),
)
