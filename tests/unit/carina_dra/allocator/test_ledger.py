"""What a search takes, in addition to what is in use."""

from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.node import Node
from carina_dra.placement.cluster import Cluster
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult
from tests.samples.fleet import DRIVER, consumption, slices


def test_device_in_use_on_another_node_has_drawn_from_the_counters() -> None:
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 3}
    counters = [{"name": "x", "counters": {"memory": {"value": "4"}}}]
    specs = (
        {"allNodes": True, "nodeName": None, "sharedCounters": counters},
        {"nodeName": "a", "devices": [{"name": "a0", **consumption(x=3)}]},
        {"nodeName": "b", "devices": [{"name": "b0", **consumption(x=3)}]},
    )
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for published in slices("fabric", *({**spec, "pool": pool} for spec in specs)):
        nodes.put_slice(published)

    def can_draw() -> bool:
        state = nodes.state("a")
        ledger = Ledger(state.ready, state.usage, DEFAULT_FEATURES)
        (candidate,) = state.published
        return ledger.draw(candidate) is not None

    assert can_draw()
    results = (DeviceResult("r", DRIVER, "fabric", "b0"),)
    nodes.allocate("default/other", Allocation(DeviceAllocation(results)))
    assert not can_draw()
