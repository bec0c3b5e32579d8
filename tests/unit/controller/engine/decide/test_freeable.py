"""No search for victims where those who may leave could not leave enough.

Searches are measured in places that are looked for, and pods that are evicted on trial: as many on
twice as many nodes. This buys the rows `"no", own queue` and `"no", one short` of
docs/performance.md on other fleets, where each node was tried before.
"""

import pytest

from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Action, Plan
from controller.engine.model.queue import Queue
from controller.engine.model.reason import NoVictims
from tests.benchmarks.engine.hardware import ALIKE, MIG, SHARES, UNLIKE, Hardware, build
from tests.benchmarks.engine.jobs import filling, queue, snapshot, waiting

_GANG = 3
_FEW, _MANY = 9, 18
"""Nodes: more than the search for least disturbance looks at."""
_FLEETS = pytest.mark.parametrize(
    "hardware", [ALIKE, UNLIKE, MIG, SHARES], ids=lambda one: one.name
)


@_FLEETS
def test_nobody_is_tried_to_move_if_too_many_would_have_to(hardware: Hardware) -> None:
    """The limit of moves is 16, and no node has so few pods."""
    few, many = (_refused(hardware, nodes, [queue("ours", quota=None)]) for nodes in (_FEW, _MANY))
    assert few.steps == many.steps
    assert Action.CONSOLIDATE in {one.action for one in _no_victims(many)}


@_FLEETS
@pytest.mark.parametrize("given", [1, 7])
def test_nobody_is_tried_to_go_if_queues_do_not_have_to_give_enough(
    hardware: Hardware, given: int
) -> None:
    """On each node eight GPUs are in use by eight jobs or more, of which too few may go."""

    def plan_of(nodes: int) -> Plan:
        held = sum(1 for node in range(nodes) for _ in hardware.full(node))
        queues = [queue("theirs", quota=held - given), queue("ours", quota=None)]
        return _refused(hardware, nodes, queues)

    few, many = map(plan_of, (_FEW, _MANY))
    assert few.steps == many.steps
    assert Action.RECLAIM in {one.action for one in _no_victims(many)}


def test_candidates_are_counted_on_nodes_that_are_not_tried() -> None:
    """The reason says how many groups could be evicted, though nobody was."""
    first, *_ = _no_victims(_refused(MIG, _FEW, [queue("ours", quota=None)]))
    assert first.action is Action.CONSOLIDATE
    assert first.tried == sum(1 for node in range(_FEW) for _ in MIG.full(node))


def _refused(hardware: Hardware, nodes: int, queues: list[Queue]) -> Plan:
    """What is decided for a gang of whole nodes of the last queue, where the first has all."""
    running = filling(hardware, queues[0].name, range(nodes))
    gang = waiting("gang", queues[-1].name, hardware.whole_node, pods=_GANG)
    found = plan(snapshot(build(hardware, nodes), queues, [*running, *gang]))
    assert not found.evictions
    return found


def _no_victims(found: Plan) -> list[NoVictims]:
    (reasons,) = found.waiting.values()
    return [one for one in reasons if isinstance(one, NoVictims)]
