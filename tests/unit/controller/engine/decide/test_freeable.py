"""No search for victims where those who may leave could not leave enough.

Searches are measured in places that are looked for, and pods that are evicted on trial: as many on
twice as many nodes. This buys the rows `"no", own queue` and `"no", one short` of
docs/performance.md on other fleets, where each node was tried before.
"""

from dataclasses import replace

import pytest

from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    NodeSelector,
    ResourceClaim,
    ResourceClaimStatus,
)
from controller.engine.decide.cycle import plan
from controller.engine.decide.victims.freeable import Freeable
from controller.engine.model.plan import Action, Plan
from controller.engine.model.pod import Pod
from controller.engine.model.queue import Queue
from controller.engine.model.reason import NoVictims
from controller.engine.model.snapshot import EngineSettings
from tests.benchmarks.engine.hardware import ALIKE, MIG, REQUEST, SHARES, UNLIKE, Hardware, build
from tests.benchmarks.engine.jobs import Job, filling, queue, snapshot, waiting
from tests.benchmarks.fleet import DRIVER
from tests.benchmarks.pool import node_name
from tests.unit.controller.engine.scene import Scene, only

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
    held = sum(1 for node in range(_FEW) for _ in MIG.full(node))
    queues = [queue("theirs", quota=held - 1), queue("ours", quota=None)]
    tried = {one.action: one.tried for one in _no_victims(_refused(MIG, _FEW, queues))}
    assert tried[Action.RECLAIM] == held


def test_devices_that_a_claim_has_already_need_not_be_freed() -> None:
    """Others have the last GPU of the node; one of them goes for the cpu that the pod needs."""
    (job,) = waiting("holds", "ours", MIG.whole_node)
    others = [
        one
        for one in filling(MIG, "ours", range(1))
        if _devices(one.claims[0])[0].device.startswith("gpu-7-")
    ]
    (pod,), (asked,) = job.pods, job.claims
    results = tuple(DeviceResult(REQUEST, DRIVER, node_name(0), f"gpu-{at}") for at in range(7))
    allocation = Allocation(DeviceAllocation(results), node_selector=_selector(others[0]))
    site = build(MIG, _FEW)
    node, *_ = site.nodes
    needs = replace(pod.needs, cpu=node.cpu - 1_000 * (len(others) - 1))
    holding = replace(
        job,
        group=replace(job.group, priority=1),
        pods=(replace(pod, needs=needs),),
        claims=(replace(asked, status=ResourceClaimStatus(allocation)),),
    )
    scene = snapshot(site, [queue("ours", quota=None)], [*others, holding])
    found = plan(replace(scene, settings=EngineSettings(actions=(Action.PREEMPT,))))
    assert len(found.evictions) == 1


def _devices(claim: ResourceClaim) -> tuple[DeviceResult, ...]:
    assert claim.status.allocation is not None
    return claim.status.allocation.devices.results


def _selector(job: Job) -> NodeSelector | None:
    (claim,) = job.claims
    assert claim.status.allocation is not None
    return claim.status.allocation.node_selector


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


def test_nodes_are_not_all_looked_at_for_each_pod_where_the_first_are_used_up(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """This buys the row "consolidation for 41 gangs"."""
    looked: list[str] = []
    may_suffice = Freeable.may_suffice

    def counted(freeable: Freeable, pod: Pod, node: str) -> bool:
        looked.append(node)
        return may_suffice(freeable, pod, node)

    monkeypatch.setattr(Freeable, "may_suffice", counted)
    scene = Scene(**only(Action.CONSOLIDATE)).queue("q")
    for at in range(60):
        scene.node(f"n{at:02}", 2).runs(f"r{at:02}", f"n{at:02}")
    for at in range(20):
        scene.waits(f"w{at:02}", gpus=2)
    decided = scene.plan()
    assert len(decided.evictions) == 20
    assert len(looked) < 20 * 30
