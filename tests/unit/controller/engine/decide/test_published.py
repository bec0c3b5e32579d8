"""Whole GPUs are decided for as cheaply where partitions of them are published, too.

This buys the row "the same jobs of whole GPUs" of docs/performance.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from controller.engine.model.queue import Queue
from tests.benchmarks.claims import request
from tests.benchmarks.engine.hardware import ALIKE, Hardware, Use, build
from tests.benchmarks.engine.jobs import filling, queue, snapshot, waiting
from tests.benchmarks.engine.rehearsal import Rehearsal
from tests.benchmarks.fleet import Fleet
from tests.benchmarks.fleets import published
from tests.calls import calls_of

_NODES = 10
_ASKED = request('device.attributes["gpu.carina.dev"].type == "gpu"')


def _hardware(make: Callable[[int], Fleet]) -> Hardware:
    """Nodes whose GPUs are used as a whole."""

    def full(node: int) -> Iterator[Use]:
        return (replace(use, request=_ASKED) for use in ALIKE.full(node))

    return replace(ALIKE, slices=lambda number: make(number).slices(), full=full, one=_ASKED)


def _calls(hardware: Hardware, queues: list[Queue]) -> int:
    """What it takes to decide for a job that comes to a full cluster."""
    running = filling(hardware, queues[0].name, range(_NODES))
    rehearsal = Rehearsal(snapshot(build(hardware, _NODES), queues, running))
    first, second = waiting("new", queues[-1].name, hardware.one, jobs=2)
    rehearsal.submit([first])
    rehearsal.carry_out(rehearsal.decide())
    rehearsal.submit([second])
    return calls_of(rehearsal.decide)


@pytest.mark.parametrize(
    "queues",
    [
        pytest.param([queue("ours", quota=None)], id="no room"),
        pytest.param([queue("theirs"), queue("ours", quota=None)], id="reclaim"),
    ],
)
def test_a_whole_gpu_costs_at_most_twice_as_much_where_partitions_are_published(
    queues: list[Queue],
) -> None:
    whole, partitioned = (
        _calls(_hardware(make), queues)
        for make in (published.whole_with_mig, published.partitioned)
    )
    assert partitioned < 2 * whole
