"""The same work on fleets of several sizes: alike, unlike, with MIG partitions, and shared."""

from functools import partial
from typing import Final

from tests.benchmarks.engine.hardware import ALIKE, MIG, SHARES, UNLIKE, Hardware, build
from tests.benchmarks.engine.jobs import waiting
from tests.benchmarks.engine.scenarios import Bench, Goal
from tests.benchmarks.gpus import PER_NODE
from tests.benchmarks.subject import Hear

_JOBS: Final = 4_000
_GANG: Final = 512
_NO_GOAL: Final = Goal(None)
_MANY: Final = 10_000
"""On so many nodes, each job that runs has all devices of a node."""
_FLEETS: Final = (
    (ALIKE, (500, 5_000, 50_000)),
    (UNLIKE, (1_000, 5_000)),
    (MIG, (1_000, 5_000)),
    (SHARES, (1_000, 5_000)),
)


def measure(hardware: Hardware, nodes: int, hear: Hear, *, scale: float = 1) -> None:
    """Measures a fleet of a size.

    Raises:
        WrongAnswerError: a plan is not the right one.
    """
    nodes = max(20, round(nodes * scale))
    bench = Bench(f"engine-{hardware.name}", hardware, build(hardware, nodes), hear)
    bench.fill(min(_JOBS, nodes * PER_NODE), _NO_GOAL)
    pods = min(_GANG, nodes * PER_NODE)
    (job,) = waiting("gang", "ours", hardware.one, pods=pods)
    bench.gang(job, f"gang of {pods} pods of one device", _NO_GOAL)
    each = PER_NODE if nodes > _MANY else 1
    bench.no_full(_NO_GOAL, each)
    bench.no_reclaim(_NO_GOAL, each)
    bench.reclaim_one(_NO_GOAL, each)


MEASURES: Final = {
    f"engine-{hardware.name}-{nodes}": partial(measure, hardware, nodes)
    for hardware, sizes in _FLEETS
    for nodes in sizes
}
