"""The order of nodes: none that has the devices is missing, or comes too late."""

from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.group import NUMA_NODE
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import BROKEN, CLOSENESS, FAR, Order, Policy
from carina_dra.placement.bounds.demand import Demand
from carina_dra.placement.choice.distances import NodeDistances
from carina_dra.placement.choice.order import NodeLoss, NodeOrder
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceAllocation, DeviceResult
from tests.samples.fleet import DRIVER, claim, cluster, give, gpu, network, partitions
from tests.samples.followed_cluster import FollowedCluster
from tests.samples.random_questions import questions

_MANY = 40
"""So many nodes that some can change without all being sorted."""
_EVENTS = ("allocate", "release", "remove", "add")


def order_of(of: Cluster, devices: int = 1, *, close: bool = True, wide: bool = False) -> NodeOrder:
    """The nodes that may have so many devices, the fullest first."""
    return NodeOrder(of, NodeDistances(of, devices, close=close, wide=wide), Order.BINPACK)


def names(order: NodeOrder) -> list[str]:
    """The nodes in their order."""
    return [entry[3] for entry in order.entries()]


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 10**9), st.sampled_from(["binpack", "spread", "fragmentation"]))
def test_entry_is_never_worse_than_the_best_allocation(seed: int, policy: str) -> None:
    for question in questions(seed, Policy.parse(policy)):
        if question.allocated is None:
            continue
        of, score = question.cluster, question.allocated.score
        demand = Demand(question.request.claims, of.features)
        wide = any(map(demand.concerns, of.wide_devices()))
        distances = NodeDistances(of, demand.required.devices, close=True, wide=wide)
        order = NodeOrder(of, distances, question.policy.nodes)
        entry = order.entry(question.node)
        assert entry is not None
        assert entry <= (score.alternatives, score.distance, score.use, question.node)
        # Which GPUs are broken is known with the devices only.
        assert entry[2] == (score.use % BROKEN if policy == "fragmentation" else score.use)
        assert order.has_room(
            question.node, demand.required.amounts, demand.required.amounts_together
        )


@settings(max_examples=30, deadline=None)
@given(st.integers(0, 10**9), st.integers(0, 3), st.booleans())
def test_order_that_follows_a_cluster_is_that_of_a_new_one(
    seed: int, devices: int, wide: bool
) -> None:
    followed, random = FollowedCluster(seed), Random(seed)
    order, moment = order_of(followed.cluster, devices, wide=wide), followed.cluster.wide_moment
    for _ in range(15):
        followed.objects.change()
        followed.follow()
        if followed.cluster.wide_moment != moment:  # a placer begins again
            moment = followed.cluster.wide_moment
            order = order_of(followed.cluster, devices, wide=wide)
        if random.random() < 0.5:
            assert order.entries() == order_of(followed.fresh(), devices, wide=wide).entries()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.lists(st.tuples(st.integers(0, _MANY - 1), st.sampled_from(_EVENTS)))))
def test_order_is_that_of_a_new_one_however_many_nodes_have_changed_since(
    rounds: list[list[tuple[int, str]]],
) -> None:
    two = [gpu("g0"), gpu("g1")]
    nodes = cluster(**{f"n{number:02}": two for number in range(_MANY)})
    order = order_of(nodes, 2)
    for events in [*rounds, []]:
        for number, event in events:
            name = f"n{number:02}"
            match event:
                case "allocate":
                    taken = DeviceResult("r", DRIVER, name, "g0")
                    nodes.allocate(f"default/{name}", Allocation(DeviceAllocation((taken,))))
                case "release":
                    nodes.release(f"default/{name}")
                case "remove":
                    nodes.remove_node(name)
                case _:  # "add"
                    nodes.put_node(Node(name))
        assert order.entries() == order_of(nodes, 2).entries()


def test_fullest_nodes_come_first_and_equal_ones_by_name() -> None:
    nodes = cluster(c=[gpu("g0"), gpu("g1")], a=[gpu("g0"), gpu("g1")], b=[gpu("g0"), gpu("g1")])
    assert names(order_of(nodes)) == ["a", "b", "c"]
    give(nodes, claim())
    assert names(order_of(nodes)) == ["a", "b", "c"]
    spread = NodeOrder(nodes, NodeDistances(nodes, 1, close=True, wide=False), Order.SPREAD)
    assert names(spread) == ["b", "c", "a"]


def test_counter_with_a_total_of_zero_does_not_count_as_used() -> None:
    nodes = cluster(b=[gpu("g0"), gpu("g1")])
    assert give(nodes, claim()) == ["b/g0"]
    nodes.put_node(Node("a"))
    for published in partitions("a", 0, part=0):
        nodes.put_slice(published)
    assert give(nodes, claim(), Policy.parse("spread")) == ["a/part"]


def test_loss_is_asked_only_of_nodes_that_may_have_the_devices() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0"), gpu("g1")], c=[gpu("g0"), gpu("g1")])
    give(nodes, claim())
    asked: list[str] = []

    def on(node: str) -> int:
        asked.append(node)
        return {"b": 2, "c": 1}[node]

    distances = NodeDistances(nodes, 1, close=True, wide=False)
    order = NodeOrder(nodes, distances, Order.BALANCED, NodeLoss(0, "kind", on, on))
    assert names(order) == ["c", "b"]
    assert sorted(asked) == ["b", "c"]


def test_nodes_with_too_few_free_devices_are_left_out() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0"), gpu("g1")])
    give(nodes, claim())
    assert names(order_of(nodes)) == ["b"]
    assert names(order_of(nodes, 2)) == ["b"]
    assert names(order_of(nodes, 3)) == []


def test_nodes_with_an_invalid_pool_stay_though_they_have_too_few_devices() -> None:
    nodes = cluster(a=[gpu("g0"), gpu("g0")], b=[])
    assert names(order_of(nodes, 2)) == ["a"]


def test_devices_of_all_nodes_count_only_where_they_are_asked_for() -> None:
    nodes = cluster(a=[gpu("g0")])
    nodes.put_slice(network("net", gpu("n0")))
    assert names(order_of(nodes, 2)) == []
    assert names(order_of(nodes, 2, wide=True)) == ["a"]


def test_close_devices_come_before_full_nodes() -> None:
    nodes = cluster(
        a=[gpu("g0", numa=0), gpu("g1", numa=1), gpu("g2", numa=1)],
        b=[gpu("g0", numa=0), gpu("g1", numa=0)],
    )
    give(nodes, claim(selector='device.attributes["resource.kubernetes.io"].numaNode == 1'))
    distances = [entry[1] for entry in order_of(nodes, 2).entries()]
    assert names(order_of(nodes, 2)) == ["b", "a"]
    assert distances[1] == FAR == len(CLOSENESS)
    assert names(order_of(nodes, 2, close=False)) == ["a", "b"]


def test_entry_is_another_object_once_its_node_has_changed() -> None:
    nodes = cluster(a=[gpu("g0")], b=[gpu("g0"), gpu("g1")])
    order = order_of(nodes)
    first, other = order.entry("b"), order.entry("a")
    asked = claim(2)
    give(nodes, asked)
    nodes.release(asked.key)
    assert order.entry("b") == first
    assert order.entry("b") is not first
    assert order.entry("a") is other


def test_room_is_what_a_device_has_left() -> None:
    memory = {"memory": {"value": "80"}}
    nodes = cluster(a=[{**gpu("g0"), "allowMultipleAllocations": True, "capacity": memory}])
    order = order_of(nodes)
    wanted = {"memory": Quantity.parse("50").nanos}
    assert order.has_room("a", wanted)
    asked = claim(capacity={"requests": {"memory": "40"}})
    give(nodes, asked)
    order.entries()
    assert not order.has_room("a", wanted)
    nodes.release(asked.key)
    order.entries()
    assert order.has_room("a", wanted)


def test_room_within_an_attribute_is_what_its_devices_have_left_together() -> None:
    memory = {"allowMultipleAllocations": True, "capacity": {"memory": {"value": "80"}}}
    devices = [{**gpu(f"g{index}", numa=index // 2), **memory} for index in range(4)]
    nodes = cluster(a=devices)
    order = order_of(nodes, 2)

    def has_room(amount: str) -> bool:
        order.entries()
        wanted = {"memory": Quantity.parse(amount).nanos}
        return order.has_room("a", {}, [(NUMA_NODE, wanted)])

    assert has_room("160")
    assert not has_room("161")
    held = [claim(2, capacity={"requests": {"memory": "30"}}) for _ in range(2)]
    assert all(give(nodes, one) for one in held)
    assert has_room("160")  # on the other NUMA node
    last = claim(4, capacity={"requests": {"memory": "10"}})
    assert give(nodes, last)
    assert has_room("140")
    assert not has_room("141")
    nodes.release(last.key)
    assert has_room("160")
