"""Nodes with very many devices: a hundred and more on each GPU."""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import ATTRIBUTES, NUMA, PCIE, pod, request
from tests.benchmarks.fleet import Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MEMORY_SLICES, ONE, PER_NODE, counter_set
from tests.benchmarks.pool import holder, node_name, nodes, slices_of

_SEED: Final = 9
_PER_GPU: Final = 100
_PROFILES: Final = 19


def make(number: int) -> Fleet:
    """A hundred devices on each of eight GPUs, one of them in use."""
    return _fleet(number, _PER_GPU)


def denser(number: int) -> Fleet:
    """The same with twice as many devices."""
    return _fleet(number, 2 * _PER_GPU)


def _fleet(number: int, per_gpu: int) -> Fleet:
    def slices() -> Iterator[Object]:
        counter_sets = [counter_set(gpu) for gpu in range(PER_NODE)]
        for node in range(number):
            devices = [
                _device(node, gpu, index) for gpu in range(PER_NODE) for index in range(per_gpu)
            ]
            yield from slices_of(node, devices, counter_sets)

    def in_use() -> Iterator[Object]:
        random = Random(_SEED)
        for node in range(number):
            for gpu in range(PER_NODE):
                yield holder(node_name(node), _name(gpu, random.randrange(_PER_GPU)))

    return Fleet(nodes(number), slices, in_use)


def _device(node: int, gpu: int, index: int) -> Object:
    slot = f"memory-slice-{index % MEMORY_SLICES}"
    return {
        "name": _name(gpu, index),
        "attributes": {
            "type": {"string": "mig"},
            "profile": {"string": f"profile-{index % _PROFILES}"},
            "uuid": {"string": f"GPU-{node:05}-{gpu}"},
            NUMA: {"int": gpu // 4},
            PCIE: {"string": f"pci0000:{gpu:02x}"},
        },
        "capacity": {"memory": {"value": "10Gi"}},
        "consumesCounters": [{"counterSet": f"gpu-{gpu}", "counters": {slot: ONE}}],
    }


def _name(gpu: int, index: int) -> str:
    return f"gpu-{gpu}-part-{index}"


def one(_: int) -> Pod:
    """A device of a profile."""
    return _of_profile(0)


def _of_profile(number: int) -> Pod:
    return pod(request(f'{ATTRIBUTES}.profile == "profile-{number % _PROFILES}"'))


SCENARIO: Final = Scenario(
    name="dense",
    about="{nodes} nodes of 8 GPUs with 100 devices each",
    nodes=50,
    make=make,
    one=one,
    questions=(
        Question("1 device, new kind", Asking.NEW, lambda number: _of_profile(1 + number), 50),
        Question("1 device, like", Asking.LIKE, one, 1, times=100),
    ),
    nodes_in_tests=2,
    denser=denser,
)
