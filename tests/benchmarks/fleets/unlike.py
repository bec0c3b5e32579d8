"""Nodes of which no two are alike: NUMA layout, memory, and which GPUs are in use."""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import (
    ATTRIBUTES,
    NUMA,
    PCIE,
    has_memory,
    has_model,
    match,
    pod,
    request,
)
from tests.benchmarks.fleet import Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MEMORY_GIB, MODELS, PER_NODE, gpu, model_of
from tests.benchmarks.pool import holder, node_name, nodes, slices_of

_SEED: Final = 1
_MOST_MISSING_MIB: Final = 4000
_MOST_IN_USE: Final = 6


def make(number: int) -> Fleet:
    """The memory of each GPU differs by MiB, and up to six of eight GPUs are in use."""

    def slices() -> Iterator[Object]:
        random = Random(_SEED)
        for node in range(number):
            memory = MEMORY_GIB[model_of(node)] * 1024
            devices = [
                gpu(
                    node,
                    index,
                    numa=random.randint(0, 1),
                    memory=f"{memory - random.randint(0, _MOST_MISSING_MIB)}Mi",
                )
                for index in range(PER_NODE)
            ]
            yield from slices_of(node, devices)

    def in_use() -> Iterator[Object]:
        random = Random(_SEED + 1)
        for node in range(number):
            for index in random.sample(range(PER_NODE), random.randint(0, _MOST_IN_USE)):
                yield holder(node_name(node), f"gpu-{index}")

    return Fleet(nodes(number), slices, in_use)


def one(_: int) -> Pod:
    """A GPU of a model."""
    return pod(request(has_model("H100")))


def pair(model: str, memory: str) -> Pod:
    """Two GPUs of a NUMA node."""
    return pod(
        request(f"{has_model(model)} && {has_memory(memory)}", 2), constraints=(match(NUMA),)
    )


def new_pair(number: int) -> Pod:
    """Two GPUs of a NUMA node; another model and memory for each number."""
    return pair(MODELS[number % len(MODELS)], f"{20 + number}Gi")


def like_pair(_: int) -> Pod:
    """Two GPUs of a NUMA node, always the same."""
    return pair("H100", "40Gi")


def _too_large(number: int) -> Pod:
    return pair(MODELS[number % len(MODELS)], f"{200 + number}Gi")


def _by_identity(number: int) -> Pod:
    """A GPU by its UUID: of a node in the middle, whether it is in use or not."""
    return pod(request(f'{ATTRIBUTES}.uuid == "GPU-{number:05}-{number % PER_NODE}"'))


def _bound(number: int) -> Pod:
    """A selector that no index of attributes understands at once."""
    model = MODELS[number % len(MODELS)]
    return pod(
        request(f'cel.bind(g, {ATTRIBUTES}, g.model == "{model}" && g.minor >= {number % 3})')
    )


def _several(count: int, number: int) -> Pod:
    """Several GPUs of a node, which closeness orders."""
    return pod(request(f"{has_model('H100')} && {has_memory(f'{20 + number}Gi')}", count))


QUESTIONS: Final = (
    Question("2 GPUs of a NUMA node, new kind", Asking.NEW, new_pair, 30),
    Question("2 GPUs of a NUMA node, like", Asking.LIKE, like_pair, 1, times=300),
    Question("2 GPUs, more memory than any has, new kind", Asking.NEW, _too_large, 30),
    Question("4 GPUs of a node, new kind", Asking.NEW, lambda number: _several(4, number), 30),
    Question("8 GPUs of a node, new kind", Asking.NEW, lambda number: _several(8, number), 30),
    Question(
        "2 GPUs of a PCIe root, of which none has two, new kind",
        Asking.NEW,
        lambda number: pod(request(has_memory(f"{20 + number}Gi"), 2), constraints=(match(PCIE),)),
        30,
    ),
    Question("1 GPU by its UUID", Asking.NEW, _by_identity, 30),
    Question("1 GPU through cel.bind, new kind", Asking.NEW, _bound),
    Question("1 GPU through cel.bind, like", Asking.LIKE, lambda _: _bound(1), 1, times=100),
)

SCENARIO: Final = Scenario(
    name="unlike",
    about="{nodes} nodes of 8 GPUs, no two alike: NUMA layout, memory to the MiB, random use",
    nodes=5000,
    make=make,
    one=one,
    questions=QUESTIONS,
)
