"""Pods with several requests, alternatives and constraints."""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import (
    ATTRIBUTES,
    NUMA,
    PCIE,
    alternative,
    first_available,
    match,
    pod,
    request,
)
from tests.benchmarks.fleet import Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MODELS, PER_NODE, gpu
from tests.benchmarks.pool import holder, node_name, nodes, slices_of

_SEED: Final = 5
_IN_USE: Final = 0.5


def make(number: int) -> Fleet:
    """Beside each GPU of a node is a network card; half of both are in use, at random."""

    def slices() -> Iterator[Object]:
        for node in range(number):
            cards = [_card(index) for index in range(PER_NODE)]
            yield from slices_of(node, [*(_gpu(node, index) for index in range(PER_NODE)), *cards])

    def in_use() -> Iterator[Object]:
        random = Random(_SEED)
        for node in range(number):
            for index in range(PER_NODE):
                for kind in ("gpu", "nic"):
                    if random.random() < _IN_USE:
                        yield holder(node_name(node), f"{kind}-{index}")

    return Fleet(nodes(number), slices, in_use)


def _gpu(node: int, index: int) -> Object:
    device = gpu(node, index)
    return {**device, "attributes": {**device["attributes"], "kind": {"string": "gpu"}}}


def _card(index: int) -> Object:
    attributes = {
        "kind": {"string": "nic"},
        PCIE: {"string": f"pci0000:{index:02x}"},
        NUMA: {"int": index // 4},
    }
    return {"name": f"nic-{index}", "attributes": attributes}


def one(_: int) -> Pod:
    """A GPU of any model."""
    return pod(request(f'{ATTRIBUTES}.kind == "gpu"'))


def four(first: int) -> Pod:
    """Two GPUs, each with a card of its PCIe root, all on one NUMA node.

    Each GPU is of the first available of three models, which `first` rotates.
    """
    models = [MODELS[(first + index) % len(MODELS)] for index in range(3)]
    return pod(
        _gpu_of("gpu-a", models),
        request(f'{ATTRIBUTES}.kind == "nic"', name="nic-a"),
        _gpu_of("gpu-b", models),
        request(f'{ATTRIBUTES}.kind == "nic"', name="nic-b"),
        constraints=(match(PCIE, "gpu-a", "nic-a"), match(PCIE, "gpu-b", "nic-b"), match(NUMA)),
    )


def _gpu_of(name: str, models: list[str]) -> Object:
    return first_available(
        name,
        *(
            alternative(
                f'{ATTRIBUTES}.kind == "gpu" && {ATTRIBUTES}.?model.orValue("") == "{model}"',
                name=model.lower(),
            )
            for model in models
        ),
    )


def _two_claims(number: int) -> Pod:
    """Two claims that ask for different GPUs of a node."""
    kind, minor = f'{ATTRIBUTES}.kind == "gpu"', f"{ATTRIBUTES}.?minor.orValue(0)"
    return (
        *pod(request(f"{kind} && {minor} >= {number % 3}", 2)),
        *pod(request(f"{kind} && {minor} < {6 + number // 3}", 2)),
    )


SCENARIO: Final = Scenario(
    name="constrained",
    about="{nodes} nodes of 8 GPUs and 8 network cards, half of them in use at random",
    nodes=1000,
    make=make,
    one=one,
    questions=(
        Question(
            "4 requests, firstAvailable, 3 matchAttribute, new kind", Asking.NEW, four, 30, times=4
        ),
        Question(
            "4 requests, firstAvailable, 3 matchAttribute, like",
            Asking.LIKE,
            lambda _: four(0),
            1,
            times=100,
        ),
        Question("2 claims of 2 GPUs, new kind", Asking.NEW, _two_claims, 30),
    ),
)
