"""A fleet and questions chosen against an allocator that prunes by counts, kinds and indexes.

The devices of a node stand in a grid whose rows and columns are attributes with other values on
each node. Every count suggests that a node can serve a pod, and only a search shows that it cannot.
Nodes with more devices in use are suitable less often, so an order of nodes by use tries suitable
nodes last. Devices are as far from each other as they can be, so a search for close ones fails.
"""

from collections.abc import Iterator
from random import Random
from typing import Final

from tests.benchmarks.claims import (
    ATTRIBUTES,
    CAPACITY,
    NUMA,
    PCIE,
    alternative,
    distinct,
    first_available,
    has_memory,
    match,
    pod,
    request,
)
from tests.benchmarks.fleet import DRIVER, Asking, Fleet, Object, Pod, Question, Scenario
from tests.benchmarks.gpus import MODELS
from tests.benchmarks.pool import holder, node_name, nodes, slices_of

_SEED: Final = 13
_SIDE: Final = 3
_ROW, _COLUMN, _DIAGONAL = (f"{DRIVER}/{name}" for name in ("row", "column", "diagonal"))
_MOST_IN_USE: Final = 6
_CORNERS: Final = ("a", "b", "c", "d")
_RECTANGLE: Final = (
    match(_ROW, "a", "b"),
    match(_COLUMN, "b", "c"),
    match(_ROW, "c", "d"),
    match(_COLUMN, "d", "a"),
    distinct(_COLUMN, "a", "b"),
    distinct(_ROW, "b", "c"),
)


def make(number: int) -> Fleet:
    """A grid of three by three devices on each node, up to six of them in use.

    No two devices share both row and column, except on the last node.
    """

    def slices() -> Iterator[Object]:
        random = Random(_SEED)
        for node in range(number):
            cells = [(row, column) for row in range(_SIDE) for column in range(_SIDE)]
            if node == number - 1:
                cells = [(row, 0) for row, _ in cells]
            random.shuffle(cells)
            devices = [
                _device(node, index, *cell, memory=random.randint(40_000, 80_000))
                for index, cell in enumerate(cells)
            ]
            yield from slices_of(node, devices)

    def in_use() -> Iterator[Object]:
        random = Random(_SEED + 1)
        for node in range(number - 1):
            for index in random.sample(range(_SIDE**2), random.randint(0, _MOST_IN_USE)):
                yield holder(node_name(node), f"gpu-{index}")

    return Fleet(nodes(number), slices, in_use)


def _device(node: int, index: int, row: int, column: int, *, memory: int) -> Object:
    return {
        "name": f"gpu-{index}",
        "attributes": {
            "model": {"string": MODELS[index % len(MODELS)]},
            "row": {"string": f"{node}-{row}"},
            "column": {"string": f"{node}-{column}"},
            "diagonal": {"int": (row + column) % _SIDE},
            "nvlinkDomain": {"string": f"{node}-{index % 3}"},
            NUMA: {"int": index % 2},
            PCIE: {"string": f"pci0000:{index:02x}"},
        },
        "capacity": {"memory": {"value": f"{memory}Mi"}},
    }


def one(_: int) -> Pod:
    """A device of a model."""
    return pod(request(f'{ATTRIBUTES}.model == "H100"'))


def _any(number: int, name: str = "gpus", count: int = 1) -> Object:
    """A request that every device can serve; another kind for each number."""
    return request(has_memory(f"{number}Mi"), count, name=name)


def _one_cell(number: int) -> Pod:
    """Two devices that share row and column, which the last node has only."""
    return pod(_any(number, count=2), constraints=(match(_ROW), match(_COLUMN)))


def _one_cell_of_distinct(number: int) -> Pod:
    """The same, and the diagonals differ, which no node has."""
    return pod(
        _any(number, count=2), constraints=(match(_ROW), match(_COLUMN), distinct(_DIAGONAL))
    )


def _rectangle(number: int) -> Pod:
    """Four devices as the corners of a rectangle, which few nodes have free."""
    return pod(*(_any(number, name) for name in _CORNERS), constraints=_RECTANGLE)


def _broken_rectangle(number: int) -> Pod:
    """The same, with two corners of a column on one diagonal, which no node has.

    Only the fourth corner shows it.
    """
    constraints = (*_RECTANGLE, match(_DIAGONAL, "a", "d"))
    return pod(*(_any(number, name) for name in _CORNERS), constraints=constraints)


def _remainder(number: int) -> Pod:
    """A selector for whose values no index helps: a remainder of the memory."""
    memory = f"{CAPACITY}.memory.asInteger() / 1048576"
    return pod(request(f"({memory}) % {97 + number} == {number}", 2))


def _last_alternative(number: int) -> Pod:
    """Eight alternatives, of which no node has the first seven."""
    return pod(
        first_available(
            "gpus",
            *(
                alternative(has_memory(f"{100 + number + index}Gi"), 1, name=f"too-large-{index}")
                for index in range(7)
            ),
            alternative(has_memory(f"{30_000 + number}Mi"), 2, name="last"),
        )
    )


def _nothing(number: int) -> Pod:
    return pod(request(has_memory(f"{1000 + number}Gi")))


SCENARIO: Final = Scenario(
    name="worst",
    about="{nodes} nodes of 9 devices in a grid, of which no two nodes are alike",
    nodes=5000,
    make=make,
    one=one,
    questions=tuple(
        Question(f"{what}, new kind", Asking.NEW, make_pod, times=4)
        for what, make_pod in (
            ("2 devices of a cell, which the last node has only", _one_cell),
            ("2 devices of a cell on two diagonals, which no node has", _one_cell_of_distinct),
            ("4 devices of a rectangle", _rectangle),
            ("4 devices of a broken rectangle, which no node has", _broken_rectangle),
            ("2 devices by a remainder of their memory", _remainder),
            ("the last of 8 alternatives", _last_alternative),
            ("1 device, selector that nothing matches", _nothing),
        )
    ),
)
