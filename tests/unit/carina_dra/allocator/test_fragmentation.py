"""The order that leaves the most to large requests."""

from typing import Any

import pytest

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import BROKEN, Order, Policy
from carina_dra.placement.choice.placer import PlacedClaims
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult, ResourceClaim
from tests.samples.fleet import DRIVER, claim, give, gpu, place, slices

_POLICY = Policy(Order.FRAGMENTATION, Order.FRAGMENTATION)


def _device(name: str, card: int, slots: range, **more: Any) -> dict[str, Any]:
    drawn = {f"slot-{slot}": {"value": "1"} for slot in slots}
    return {
        "name": name,
        "attributes": {"type": {"string": name.partition("-")[0]}},
        "consumesCounters": [{"counterSet": f"gpu-{card}", "counters": drawn}],
        **more,
    }


def _card(card: int) -> list[dict[str, Any]]:
    """A GPU of 4 slots, its halves and quarters, and itself as a device that claims share."""
    shared = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    return [
        _device(f"whole-{card}", card, range(4)),
        *(_device(f"half-{card}-{at}", card, range(2 * at, 2 * at + 2)) for at in range(2)),
        *(_device(f"quarter-{card}-{at}", card, range(at, at + 1)) for at in range(4)),
        _device(f"share-{card}", card, range(4), **shared),
    ]


def _cluster(**cards: int) -> Cluster:
    """Nodes with a number of such GPUs each."""
    nodes = Cluster()
    for name, number in cards.items():
        counters = [
            {
                "name": f"gpu-{card}",
                "counters": {f"slot-{slot}": {"value": "1"} for slot in range(4)},
            }
            for card in range(number)
        ]
        devices = [device for card in range(number) for device in _card(card)]
        nodes.put_node(Node(name))
        for published in slices(name, {"sharedCounters": counters}, {"devices": devices}):
            nodes.put_slice(published)
    return nodes


def _use(nodes: Cluster, *devices: str) -> None:
    """Uses devices `node/device`, or 10 of a shared one for each `+` after it."""
    for index, device in enumerate(devices):
        pool, _, name = device.partition("/")
        result = DeviceResult("r", DRIVER, pool, name.rstrip("+"))
        if "+" in name:
            consumed = {"memory": Quantity.of(10 * name.count("+"))}
            result = DeviceResult(
                "r", DRIVER, pool, name.rstrip("+"), share_id="x", consumed_capacity=consumed
            )
        nodes.allocate(f"used/{index}", Allocation(DeviceAllocation((result,))))


def _asked(kind: str, **more: Any) -> ResourceClaim:
    return claim(selector=f'device.attributes["{DRIVER}"].type == "{kind}"', **more)


def _share(memory: int) -> ResourceClaim:
    return _asked("share", capacity={"requests": {"memory": str(memory)}})


@pytest.mark.parametrize(
    ("used", "asked", "device"),
    [
        pytest.param([], _asked("quarter"), "a/quarter-0-0", id="free GPUs are equal"),
        pytest.param(["a/half-1-0"], _asked("quarter"), "a/quarter-1-2", id="GPU in use first"),
        pytest.param(["a/half-1-0"], _asked("whole"), "a/whole-0", id="whole GPU"),
        pytest.param(
            ["a/quarter-0-0", "a/half-1-0"],
            _asked("half"),
            "a/half-1-1",
            id="fuller GPU",
        ),
        pytest.param(
            ["a/quarter-0-0", "a/quarter-0-1", "a/quarter-0-2", "a/quarter-1-0"],
            _asked("quarter"),
            "a/quarter-0-3",
            id="fullest GPU",
        ),
        pytest.param(["a/share-0++", "a/share-1+++"], _share(10), "a/share-1", id="fullest card"),
        pytest.param(
            ["a/share-0++", "a/share-1+++++++"],
            _share(20),
            "a/share-0",
            id="fullest card on which it fits",
        ),
        pytest.param(["a/half-0-0"], _share(10), "a/share-1", id="partitioned GPU is not shared"),
        pytest.param(
            ["a/half-0-0"],
            claim(selector='device.attributes["gpu.carina.dev"].type in ["whole", "quarter"]'),
            "a/quarter-0-2",
            id="smallest device that suffices",
        ),
    ],
)
def test_device_that_leaves_the_most_is_taken(
    used: list[str], asked: ResourceClaim, device: str
) -> None:
    nodes = _cluster(a=2)
    _use(nodes, *used)
    assert give(nodes, asked, _POLICY) == [device]


@pytest.mark.parametrize(
    ("used", "asked", "node"),
    [
        pytest.param([], _asked("whole"), "b", id="fewest free GPUs"),
        pytest.param(["a/whole-0", "a/whole-1"], _asked("whole"), "a", id="fewer are left"),
        pytest.param(["a/half-0-0"], _asked("quarter"), "a", id="no free GPU is broken"),
        pytest.param(
            ["a/half-0-0", "b/half-0-0"], _asked("quarter"), "b", id="both break none: fewest free"
        ),
        pytest.param(["a/quarter-0-0", "b/whole-0"], _asked("half"), "a", id="half of a used GPU"),
        pytest.param(["b/half-0-0", "b/half-0-1"], _asked("half"), "b", id="fewest free left"),
        pytest.param(["a/share-0+", "b/share-0++++++++"], _share(10), "a", id="share of used"),
        pytest.param(["a/share-0++", "b/whole-0"], _share(70), "b", id="it must break one"),
        pytest.param(
            ["a/whole-0", "a/half-1-0", "b/quarter-0-0"],
            _asked("quarter"),
            "a",
            id="as many free GPUs: the fuller one",
        ),
    ],
)
def test_node_where_it_breaks_the_fewest_free_gpus_is_taken(
    used: list[str], asked: ResourceClaim, node: str
) -> None:
    nodes = _cluster(a=3, b=2)
    _use(nodes, *used)
    (device,) = give(nodes, asked, _POLICY)
    assert device.partition("/")[0] == node


@pytest.mark.parametrize(
    ("used", "asked", "broken"),
    [
        ([], _asked("whole"), 0),
        ([], _asked("half"), 1),
        ([], _asked("half", count=2), 1),
        ([], _asked("half", count=3), 2),
        (["a/half-0-0"], _asked("half"), 0),
        (["a/half-0-0"], _asked("half", count=2), 1),
        ([], _share(80), 1),
        (["a/share-0+"], _share(70), 0),
        ([], _asked("half", adminAccess=True), 0),
    ],
)
def test_score_counts_the_broken_gpus(used: list[str], asked: ResourceClaim, broken: int) -> None:
    nodes = _cluster(a=2)
    _use(nodes, *used)
    placed = place(nodes, asked, _POLICY)
    assert isinstance(placed, PlacedClaims)
    assert placed.allocated.score.use // BROKEN == broken


def test_gpus_close_to_each_other_stay_together() -> None:
    nodes = Cluster()
    nodes.put_node(Node("a"))
    gpus = [gpu(f"g{index}", numa=index // 3) for index in range(5)]
    nodes.put_slice(slices("a", {"devices": gpus})[0])
    given = [give(nodes, claim(), _POLICY) for _ in range(2)]
    assert given == [["a/g3"], ["a/g4"]]
