"""Nodes of a few kinds: large clusters, and the plain one of upstream's own benchmark."""

from collections.abc import Iterator
from typing import Final

from tests.benchmarks.claims import has_model, pod, request
from tests.benchmarks.fleet import Asking, Fleet, Goals, Object, Pod, Question, Scenario
from tests.benchmarks.fleets import unlike
from tests.benchmarks.gpus import PER_NODE, gpus
from tests.benchmarks.pool import holder, node_name, nodes, slices_of

_USES: Final = 6
"""Nodes have 0 to 5 GPUs in use, in turn."""


def make(number: int) -> Fleet:
    """Four models, and no other difference but which GPUs are in use: twelve kinds of nodes."""

    def slices() -> Iterator[Object]:
        for node in range(number):
            yield from slices_of(node, gpus(node))

    def in_use() -> Iterator[Object]:
        for node in range(number):
            for use in range(node % _USES):
                yield holder(node_name(node), f"gpu-{(use * 3 + node) % PER_NODE}")

    return Fleet(nodes(number), slices, in_use)


def plain(number: int) -> Fleet:
    """Ten devices a node with a model only; none in use."""

    def slices() -> Iterator[Object]:
        for node in range(number):
            model = {"model": {"string": "H200"}}
            devices = [{"name": f"gpu-{index}", "attributes": model} for index in range(10)]
            yield from slices_of(node, devices)

    return Fleet(nodes(number), slices, lambda: ())


def full(number: int) -> Fleet:
    """The plain fleet with everything in use."""
    fleet = plain(number)

    def in_use() -> Iterator[Object]:
        for node in range(number):
            for index in range(10):
                yield holder(node_name(node), f"gpu-{index}")

    return Fleet(fleet.nodes, fleet.slices, in_use)


def _any(_: int) -> Pod:
    return pod(request())


ALIKE: Final = Scenario(
    name="alike",
    about="{nodes} nodes of 8 GPUs, of 12 kinds",
    nodes=5000,
    make=make,
    one=unlike.one,
    questions=(
        Question("2 GPUs of a NUMA node, new kind", Asking.NEW, unlike.new_pair, 20),
        Question("2 GPUs of a NUMA node, like", Asking.LIKE, unlike.like_pair, 1, times=1000),
    ),
)
LARGE: Final = Scenario(
    name="large",
    about="{nodes} nodes of 8 GPUs, of 12 kinds",
    nodes=50_000,
    make=make,
    one=unlike.one,
    questions=(
        Question("2 GPUs of a NUMA node, new kind", Asking.NEW, unlike.new_pair, 30, times=4),
        Question("2 GPUs of a NUMA node, like", Asking.LIKE, unlike.like_pair, 0.3, times=300),
    ),
)
PLAIN: Final = Scenario(
    name="plain",
    about="{nodes} nodes of 10 devices, all free",
    nodes=500,
    make=plain,
    one=_any,
    questions=(Question("1 device, like", Asking.LIKE, _any, 0.3, times=500),),
)
FULL: Final = Scenario(
    name="full",
    about="{nodes} nodes of 10 devices, all in use",
    nodes=500,
    make=full,
    one=_any,
    questions=(
        Question("1 device, like", Asking.LIKE, _any, 0.3, times=500),
        Question(
            "1 device, new kind",
            Asking.NEW,
            lambda number: pod(request(f"{has_model('H200')} && {number} >= 0")),
            30,
        ),
    ),
    goals=Goals(gang_s=None),
)
