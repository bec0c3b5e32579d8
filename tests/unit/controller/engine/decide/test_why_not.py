"""On how many nodes each constraint keeps a pod away."""

import pytest

from controller.engine.decide.cycle import plan
from controller.engine.model.group import Group, PodSet, TopologyConstraint
from controller.engine.model.node import Taint
from controller.engine.model.pod import PodNeeds
from controller.engine.model.reason import NoRoom
from controller.engine.model.snapshot import Snapshot
from tests.unit.controller.engine.decide.gpu_cluster import node, queue, waiting
from tests.unit.controller.engine.scene import Scene

_NODES = (
    node("cordoned", unschedulable=True),
    node("tainted", taints=(Taint("gpu"),)),
    node("small-1", cpu=10),
    node("small-2", cpu=10),
    node("full", pods=0),
)


@pytest.mark.parametrize("topology", [None, TopologyConstraint("t", preferred="unknown")])
def test_each_node_counts_for_the_first_constraint_that_fails(
    topology: TopologyConstraint | None,
) -> None:
    asked = Snapshot(
        now=0,
        nodes=_NODES,
        queues=(queue("q"),),
        groups=(Group("a/g", "q", PodSet("", 1, topology)),),
        pods=(waiting("a/p", "a/g", needs=PodNeeds(cpu=100)),),
    )

    reason = plan(asked).waiting["a/g"][0]

    fell = (("cpu", 2), ("pods", 1), ("taint gpu", 1), ("unschedulable", 1))
    assert reason == NoRoom("a/p", 5, fell)


def test_groups_that_are_alike_do_not_read_each_others_names() -> None:
    """They may be of different namespaces in one queue."""
    scene = Scene().node("n", 1).queue("q", quota=4)
    waiting = scene.waits("mine", gpus=2).waits("theirs", gpus=2).plan().waiting
    assert "theirs" not in "; ".join(map(str, waiting["mine"]))
    assert "mine" not in "; ".join(map(str, waiting["theirs"]))
