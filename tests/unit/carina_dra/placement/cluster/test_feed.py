"""A cluster follows the objects that a watch reports, in whatever order the watches deliver."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass, field
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.explanation import explain
from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.kube.body import ObjectKey
from carina_dra.kube.store import Created, ObjectChange, Removed, Store, StoreEntry, Updated
from carina_dra.placement.choice.placer import PlacedClaims, Placement, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.feed import Feed, WatchedObject
from carina_dra.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    decode,
)
from tests.samples.fleet import DRIVER, claim, claim_of, gpu

_SEEDS = st.integers(0, 10**9)


def node(name: str) -> Node:
    return Node(name)


def gpu_slice(
    name: str,
    node: str,
    *devices: str,
    pool: str | None = None,
    generation: int = 1,
    slices: int = 1,
) -> ResourceSlice:
    """One of the `slices` of a node's pool, which has the node's name unless given."""
    of_pool = {"name": pool or node, "generation": generation, "resourceSliceCount": slices}
    spec = {"driver": DRIVER, "nodeName": node, "pool": of_pool}
    body = {
        "metadata": {"name": name},
        "spec": {**spec, "devices": [gpu(device) for device in devices]},
    }
    return decode(ResourceSlice, body)


def network_slice(*devices: str) -> ResourceSlice:
    """A slice whose devices every node reaches."""
    pool = {"name": "net", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "allNodes": True, "pool": pool}
    attached = [gpu(device) for device in devices]
    body = {"metadata": {"name": "net"}, "spec": {**spec, "devices": attached}}
    return decode(ResourceSlice, body)


def gpu_class(model: str | None = None) -> DeviceClass:
    expression = f'device.driver == "{DRIVER}"'
    if model:
        expression += f' && device.attributes["{DRIVER}"].model == "{model}"'
    selectors = [{"cel": {"expression": expression}}]
    return decode(DeviceClass, {"metadata": {"name": "gpu"}, "spec": {"selectors": selectors}})


def taint_rule(name: str, pool: str | None, effect: str = "NoSchedule") -> DeviceTaintRule:
    selector = {"driver": DRIVER, **({"pool": pool} if pool else {})}
    taint = {"key": f"example.com/{name}", "effect": effect}
    return decode(
        DeviceTaintRule,
        {"metadata": {"name": name}, "spec": {"deviceSelector": selector, "taint": taint}},
    )


def watched_claim(name: str, *devices: str) -> ResourceClaim:
    """A claim that is allocated these devices, each `pool/device`, or none yet."""
    results = [
        {"request": "gpus", "driver": DRIVER, "pool": pool, "device": device}
        for pool, _, device in (name.partition("/") for name in devices)
    ]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    metadata = {"name": name, "namespace": "team"}
    return decode(ResourceClaim, {"metadata": metadata, "spec": {}, "status": status})


def fed(*objects: WatchedObject) -> tuple[Feed, Placer, Cluster]:
    cluster = Cluster()
    feed = Feed(cluster)
    for watched in objects:
        feed.put(watched)
    return feed, Placer(cluster, Policy(), new_share_id=lambda: "share"), cluster


def devices_for(asked: ResourceClaim, feed: Feed, placer: Placer, cluster: Cluster) -> list[str]:
    """The devices that the claim would get, as `pool/device`."""
    placement = placer.place(PlacementRequest.of([asked], feed.classes, cluster.features))
    if not isinstance(placement, PlacedClaims):
        return []
    results = placement.allocated.allocations[0].devices.results
    return sorted(f"{result.pool}/{result.device}" for result in results)


def test_a_slice_of_a_newer_generation_replaces_the_older_ones() -> None:
    state = fed(node("a"), gpu_class(), gpu_slice("a-0", "a", "g0", "g1"))
    assert devices_for(claim(2), *state) == ["a/g0", "a/g1"]
    state[0].put(gpu_slice("a-1", "a", "g1", "g2", generation=2))
    assert devices_for(claim(2), *state) == ["a/g1", "a/g2"]
    assert devices_for(claim(3), *state) == []


def test_a_pool_of_two_slices_counts_once_both_are_there() -> None:
    state = fed(node("a"), gpu_class(), gpu_slice("a-0", "a", "g0", slices=2))
    assert devices_for(claim(), *state) == []
    state[0].put(gpu_slice("a-1", "a", "g1", slices=2))
    assert devices_for(claim(2), *state) == ["a/g0", "a/g1"]


def test_a_deleted_slice_offers_no_devices() -> None:
    published = gpu_slice("a-0", "a", "g0")
    state = fed(node("a"), gpu_class(), published)
    assert devices_for(claim(), *state) == ["a/g0"]
    state[0].remove(published)
    assert devices_for(claim(), *state) == []


def test_a_slice_that_leaves_a_node_offers_its_devices_on_the_other() -> None:
    state = fed(node("a"), node("b"), gpu_class(), gpu_slice("s", "a", "g0", pool="p"))
    assert devices_for(claim(), *state) == ["p/g0"]
    state[0].put(gpu_slice("s", "b", "g0", pool="p"))
    placement = state[1].place(PlacementRequest.of([claim()], state[0].classes, state[2].features))
    assert isinstance(placement, PlacedClaims)
    assert placement.node == "b"


def test_devices_of_an_allocated_claim_are_in_use_until_it_is_deleted() -> None:
    holder = watched_claim("holder", "a/g0")
    state = fed(holder, node("a"), gpu_class(), gpu_slice("a-0", "a", "g0"))
    assert devices_for(claim(), *state) == []
    state[0].remove(watched_claim("holder"))
    assert devices_for(claim(), *state) == ["a/g0"]


def test_devices_of_a_deallocated_claim_are_free() -> None:
    state = fed(node("a"), gpu_class(), gpu_slice("a-0", "a", "g0"), watched_claim("c", "a/g0"))
    state[0].put(watched_claim("c"))
    assert devices_for(claim(), *state) == ["a/g0"]


def test_devices_stay_in_use_while_their_slice_is_away() -> None:
    published = gpu_slice("a-0", "a", "g0", "g1")
    state = fed(node("a"), gpu_class(), published, watched_claim("c", "a/g0"))
    state[0].remove(published)
    assert devices_for(claim(), *state) == []
    state[0].put(published)
    assert devices_for(claim(), *state) == ["a/g1"]


def test_a_changed_class_selects_other_devices() -> None:
    state = fed(node("a"), gpu_class(), gpu_slice("a-0", "a", "g0"))
    assert devices_for(claim(), *state) == ["a/g0"]
    state[0].put(gpu_class("B200"))
    assert devices_for(claim(), *state) == []


def test_a_deleted_class_is_no_longer_known() -> None:
    feed, *_ = fed(gpu_class())
    feed.remove(gpu_class())
    assert feed.classes == {}


def test_taints_of_two_rules_are_in_the_order_of_the_rules_names() -> None:
    rules = [taint_rule("r0", None), taint_rule("r1", None)]
    objects = (node("a"), gpu_class(), gpu_slice("a-0", "a", "g0"))

    def explained(*in_order: DeviceTaintRule) -> str:
        feed, _, cluster = fed(*objects, *in_order)
        claims = PlacementRequest.of([claim()], feed.classes, cluster.features).claims
        return "\n".join(explain(claims, cluster.state("a")).lines())

    for in_order in (rules, rules[::-1]):
        assert "1 tainted example.com/r0:NoSchedule" in explained(*in_order)


def test_an_unknown_object_can_be_removed() -> None:
    state = fed(node("a"), gpu_class(), gpu_slice("a-0", "a", "g0"))
    for stranger in (
        *(node("b"), gpu_slice("b-0", "b", "g0"), taint_rule("r", None)),
        watched_claim("c", "a/g0"),
    ):
        state[0].remove(stranger)
    assert devices_for(claim(), *state) == ["a/g0"]


# Random histories: every resource has a watch of its own, as a store sees it.

_VARIANTS: Mapping[str, Mapping[str, list[WatchedObject]]] = {
    "nodes": {name: [Node(name), Node(name, {"zone": "z"})] for name in ("a", "b")},
    "slices": {
        "a-0": [
            gpu_slice("a-0", "a", "g0", "g1"),
            gpu_slice("a-0", "a", "g0", "g1", slices=2),
            gpu_slice("a-0", "a", "g1", generation=2),
            gpu_slice("a-0", "b", "g7"),
        ],
        "a-1": [
            gpu_slice("a-1", "a", "g2", slices=2),
            gpu_slice("a-1", "a", "g2", "g3", generation=2),
            gpu_slice("a-1", "a", "g1"),
        ],
        "b-0": [gpu_slice("b-0", "b", "g0"), gpu_slice("b-0", "b", "g0", "g1", generation=2)],
        "net": [
            network_slice("g0"),
            network_slice("g0", "g1"),
            gpu_slice("net", "a", "g0", pool="net"),
        ],
    },
    "claims": {
        "c0": [watched_claim("c0"), watched_claim("c0", "a/g0"), watched_claim("c0", "a/g1")],
        "c1": [watched_claim("c1", "a/g0", "b/g0"), watched_claim("c1", "b/g7")],
        "c2": [watched_claim("c2", "a/g2", "net/g0"), watched_claim("c2")],
    },
    "classes": {"gpu": [gpu_class(), gpu_class("B200"), gpu_class("H200")]},
    "rules": {
        "r0": [taint_rule("r0", "a"), taint_rule("r0", "b")],
        "r1": [taint_rule("r1", None, "NoExecute"), taint_rule("r1", "a", "None")],
    },
}

_REQUESTS = (
    claim_of({"name": "one", "exactly": {"deviceClassName": "gpu"}}),
    claim_of({"name": "two", "exactly": {"deviceClassName": "gpu", "count": 2}}),
    claim_of({"name": "all", "exactly": {"deviceClassName": "gpu", "allocationMode": "All"}}),
    claim_of(
        {
            "name": "tolerant",
            "exactly": {"deviceClassName": "gpu", "tolerations": [{"operator": "Exists"}]},
        }
    ),
)


@dataclass
class _Watch:
    """One resource: what its store holds, and the changes that the feed has not seen yet."""

    variants: Mapping[str, list[WatchedObject]]
    store: Store[WatchedObject] = field(default_factory=Store)
    pending: deque[ObjectChange[WatchedObject]] = field(default_factory=deque)
    version: int = 0

    def change(self, random: Random) -> None:
        """An object is created, updated or deleted, or the watch starts again with a list."""
        self.version += 1
        step = random.random()
        if step < 0.15:
            self.pending.extend(self.store.replace(self._list(random)))
            return
        key = ObjectKey("", random.choice(sorted(self.variants)))
        change: ObjectChange[WatchedObject] | None
        if step < 0.4:
            change = self.store.remove(key, self.version)
        else:
            change = self.store.put(key, self._entry(key, random))
        if change is not None:
            self.pending.append(change)

    def _entry(self, key: ObjectKey, random: Random) -> StoreEntry[WatchedObject]:
        return StoreEntry(self.version, random.choice(self.variants[key.name]))

    def _list(self, random: Random) -> dict[ObjectKey, StoreEntry[WatchedObject]]:
        keys = [ObjectKey("", name) for name in self.variants if random.random() < 0.7]
        random.shuffle(keys)
        return {key: self._entry(key, random) for key in keys}


def _apply(feed: Feed, change: ObjectChange[WatchedObject]) -> None:
    match change:
        case Created(value=value) | Updated(after=value):
            feed.put(value)
        case Removed(value=value):
            feed.remove(value)


def _answers(feed: Feed, placer: Placer, cluster: Cluster) -> list[object]:
    """Everything that can be asked of a cluster's state."""

    def request(asked: ResourceClaim) -> PlacementRequest:
        return PlacementRequest.of([asked], feed.classes, cluster.features)

    def placement(asked: ResourceClaim) -> Placement | str:
        try:
            return placer.place(request(asked))
        except AllocationError:
            return "an error"  # of any of the nodes; their explanations have the details

    def explanation(asked: ResourceClaim, name: str) -> list[str]:
        try:
            return list(explain(request(asked).claims, cluster.state(name)).lines())
        except AllocationError as error:
            return [str(error)]

    names = sorted(cluster.nodes)
    return [
        sorted(feed.classes.items()),
        [(cluster.nodes[name], cluster.state(name).usage) for name in names],
        [placement(asked) for asked in _REQUESTS],
        [explanation(asked, name) for asked in _REQUESTS for name in names],
    ]


@settings(max_examples=300)
@given(_SEEDS, st.integers(0, 30))
def test_any_history_ends_where_its_last_objects_lead(seed: int, length: int) -> None:
    random = Random(seed)
    watches = [_Watch(variants) for variants in _VARIANTS.values()]
    state = fed()
    for _ in range(length):
        random.choice(watches).change(random)
        for watch in random.sample(watches, k=2):
            if watch.pending:
                _apply(state[0], watch.pending.popleft())
        if random.random() < 0.5:
            _answers(*state)  # fills the caches that later changes must invalidate
    while waiting := [watch for watch in watches if watch.pending]:
        _apply(state[0], random.choice(waiting).pending.popleft())
    last = [value for watch in watches for _, value in sorted(watch.store.snapshot().items())]
    assert _answers(*state) == _answers(*fed(*last))


@given(_SEEDS)
def test_the_same_objects_again_change_nothing(seed: int) -> None:
    random = Random(seed)
    objects = [random.choice(of) for kind in _VARIANTS.values() for of in kind.values()]
    state = fed(*objects)
    before = _answers(*state)
    random.shuffle(objects)
    for watched in objects:
        state[0].put(watched)
    assert _answers(*state) == before
