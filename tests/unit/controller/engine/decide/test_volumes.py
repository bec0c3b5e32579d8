"""Where pods may be because of their volumes."""

from dataclasses import replace
from random import Random
from typing import Any

import pytest

from carina_dra.resource import (
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
)
from carina_dra.step_budget import UNLIMITED, StepBudget
from controller.engine.decide.cycle import Engine
from controller.engine.decide.nodes.labelled_nodes import LabelledNodes
from controller.engine.decide.nodes.volumes import VolumeRules
from controller.engine.model.group import PodSet
from controller.engine.model.label_selector import with_labels
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Evicting, Placed, Pod
from controller.engine.model.volume import (
    NO_PROVISIONER,
    AttachLimits,
    Storage,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
    VolumeClaimState,
    VolumeDriver,
)
from tests.unit.controller.engine.scene import Scene, started

_WAITING = VolumeClaim(VolumeClaimState.UNBOUND, class_name="fast", size=10)


def _in_zone(zone: str) -> NodeSelector:
    requirement = NodeSelectorRequirement("zone", NodeSelectorOperator.IN, (zone,))
    return NodeSelector((NodeSelectorTerm((requirement,)),))


def _bound(volume: str = "v", **fields: Any) -> VolumeClaim:
    return VolumeClaim(VolumeClaimState.BOUND, volume, **fields)


def _scene(claim: VolumeClaim | None = None, **storage: Any) -> Scene:
    """A node in each of two zones, and a pod that waits with the claim `data`."""
    scene = Scene().queue("q").node("a", labels={"zone": "1"}).node("b", labels={"zone": "2"})
    claims = {} if claim is None else {"t/data": claim}
    scene.storage = Storage(claims=claims, **storage)
    scene.group("g").pod("g", gpus=0, volumes=("t/data",))
    return scene


def _reasons(plan: Plan) -> str:
    return "; ".join(str(reason) for reasons in plan.waiting.values() for reason in reasons)


@pytest.mark.parametrize(
    ("claim", "reason"),
    [
        (None, 'persistentvolumeclaim "data" not found'),
        (
            VolumeClaim(VolumeClaimState.DELETED, "v"),
            'persistentvolumeclaim "data" is being deleted',
        ),
        (
            VolumeClaim(VolumeClaimState.LOST, "v"),
            'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"',
        ),
        (_bound(), 'persistentvolumeclaim "data" bound to non-existent persistentvolume "v"'),
        (
            VolumeClaim(VolumeClaimState.UNBOUND),
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
        (
            VolumeClaim(VolumeClaimState.UNBOUND, class_name="unknown"),
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
        (
            VolumeClaim(VolumeClaimState.UNBOUND, class_name="immediate"),
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
        (
            VolumeClaim(VolumeClaimState.UNBOUND, "prebound", class_name="fast"),
            "pod has unbound immediate PersistentVolumeClaims: data",
        ),
    ],
)
def test_a_pod_waits_for_its_volume_claim(claim: VolumeClaim | None, reason: str) -> None:
    classes = {"fast": StorageClass("csi", waits=True), "immediate": StorageClass("csi")}
    plan = _scene(claim, classes=classes).plan()
    assert started(plan) == {}
    assert _reasons(plan) == f"pod t/g-0: {reason}"


def test_nobody_is_evicted_for_a_pod_whose_claim_is_missing() -> None:
    scene = (
        Scene()
        .queue("q", quota=4)
        .queue("other")
        .node("n", gpus=1)
        .runs("victim", "n", queue="other")
    )
    scene.group("g").pod("g", gpus=1, volumes=("t/data",))
    plan = scene.plan()
    assert plan.evictions == ()
    assert "not found" in _reasons(plan)


def test_a_pod_goes_where_its_volume_is() -> None:
    scene = _scene(_bound(), volumes={"v": Volume(_in_zone("2"))})
    assert started(scene.plan()) == {"g-0": "b"}


def test_a_volume_without_affinity_is_everywhere() -> None:
    scene = _scene(_bound(), volumes={"v": Volume()})
    assert list(started(scene.plan())) == ["g-0"]


def test_the_reason_says_that_volumes_keep_a_pod_from_nodes() -> None:
    scene = _scene(_bound(), volumes={"v": Volume(_in_zone("3"))})
    assert "volumes on 2" in _reasons(scene.plan())


def test_a_volume_is_made_where_its_class_allows_it() -> None:
    fast = StorageClass("csi", waits=True, topologies=_in_zone("2"))
    assert started(_scene(_WAITING, classes={"fast": fast}).plan()) == {"g-0": "b"}


def test_a_volume_is_made_where_there_is_capacity() -> None:
    scene = _scene(
        _WAITING,
        classes={"fast": StorageClass("csi", waits=True)},
        drivers={"csi": VolumeDriver(has_capacity=True)},
        capacities={
            "x/small": StorageCapacity("fast", with_labels({"zone": "1"}), 9),
            "x/large": StorageCapacity("fast", with_labels({"zone": "2"}), 10),
            "x/other": StorageCapacity("other", with_labels({"zone": "1"}), 10),
        },
    )
    assert started(scene.plan()) == {"g-0": "b"}


def test_capacity_of_a_driver_that_says_nothing_of_it_does_not_matter() -> None:
    scene = _scene(
        _WAITING,
        classes={"fast": StorageClass("csi", waits=True)},
        drivers={"csi": VolumeDriver(has_capacity=False)},
    )
    assert list(started(scene.plan())) == ["g-0"]


def test_a_volume_that_nobody_makes_is_one_that_is_available() -> None:
    local: dict[str, Any] = {"class_name": "fast", "is_available": True}
    scene = _scene(
        _WAITING,
        classes={"fast": StorageClass(NO_PROVISIONER, waits=True)},
        volumes={
            "small": Volume(_in_zone("1"), size=9, **local),
            "large": Volume(_in_zone("2"), size=10, **local),
            "taken": Volume(_in_zone("1"), class_name="fast", size=10),
        },
    )
    assert started(scene.plan()) == {"g-0": "b"}


def test_a_volume_that_is_being_made_for_a_node_is_there() -> None:
    claim = replace(_WAITING, node="b")
    scene = _scene(claim, classes={"fast": StorageClass("csi", waits=True)})
    assert started(scene.plan()) == {"g-0": "b"}


def test_a_claim_for_one_pod_is_not_used_by_two() -> None:
    scene = _scene(_bound(is_exclusive=True), volumes={"v": Volume()})
    scene.pod(None, "a", gpus=0, name="user", volumes=("t/data",))
    plan = scene.plan()
    assert started(plan) == {}
    assert "ReadWriteOncePod is in use by pod t/user" in _reasons(plan)


def test_a_claim_for_one_pod_is_in_use_until_its_user_is_gone() -> None:
    scene = _scene(_bound(is_exclusive=True), volumes={"v": Volume()})
    scene.pod(None, gpus=0, name="user", volumes=("t/data",), state=Evicting("a"))
    state = scene.state()
    engine = Engine(state)
    plan = engine.decide()
    state.memory = plan.memory
    assert started(plan) == {}
    state.remove_pod("t/user")
    assert list(started(engine.decide())) == ["g-0"]


def test_a_gang_does_not_share_a_claim_for_one_pod() -> None:
    scene = _scene(_bound(is_exclusive=True), volumes={"v": Volume()})
    scene.group("g", root=PodSet("", 2)).pod("g", gpus=0, volumes=("t/data",))
    assert started(scene.plan()) == {}


def test_a_node_has_no_more_volumes_of_a_driver_than_it_can_attach() -> None:
    scene = _scene(
        _bound(),
        volumes={name: Volume(driver="csi") for name in ("v", "w", "x")},
        limits={"a": AttachLimits({"csi": 1, "nfs": 5}), "b": AttachLimits({"csi": 2})},
    )
    scene.storage = replace(
        scene.storage,
        claims={**scene.storage.claims, "t/w": _bound("w"), "t/x": _bound("x")},
    )
    scene.pod(None, "a", gpus=0, name="one", volumes=("t/w",))
    scene.pod(None, "b", gpus=0, name="two", volumes=("t/x",))
    assert started(scene.plan()) == {"g-0": "b"}


def test_a_volume_that_is_attached_to_a_full_node_can_be_used_there() -> None:
    scene = _scene(
        _bound(),
        volumes={"v": Volume(_in_zone("1"), driver="csi")},
        limits={"a": AttachLimits({"csi": 1})},
    )
    scene.pod(None, "a", gpus=0, name="one", volumes=("t/data",))
    assert started(scene.plan()) == {"g-0": "a"}


def test_a_group_is_asked_again_when_its_claim_is_there() -> None:
    scene = _scene()
    state = scene.state()
    engine = Engine(state)
    state.memory = engine.decide().memory
    assert started(engine.decide()) == {}
    state.put_storage("v", Volume())
    state.put_storage("t/other", _bound())
    assert state.memory.refusals
    state.put_storage("t/data", _bound())
    assert not state.memory.refusals
    assert list(started(engine.decide())) == ["g-0"]


@pytest.mark.parametrize(
    ("name", "watched"),
    [
        ("v", Volume(_in_zone("2"))),
        ("fast", StorageClass("csi", waits=True)),
    ],
)
def test_a_group_is_asked_again_when_what_it_lacks_is_there(name: str, watched: Any) -> None:
    claim = _bound() if isinstance(watched, Volume) else _WAITING
    state = _scene(claim).state()
    engine = Engine(state)
    state.memory = engine.decide().memory
    assert state.memory.refusals
    state.put_storage(name, watched)
    assert list(started(engine.decide())) == ["g-0"]


def test_other_groups_are_not_asked_again() -> None:
    state = _scene().waits("h", gpus=1).state()
    engine = Engine(state)
    state.memory = engine.decide().memory
    assert set(state.memory.refusals) == {"g", "h"}
    state.put_storage("t/data", _bound())
    assert set(state.memory.refusals) == {"h"}


def test_a_trial_leaves_no_users_behind() -> None:
    scene = _scene(_bound(), volumes={"v": Volume()})
    scene.pod(None, "a", gpus=0, name="user", volumes=("t/data",))
    state = scene.state()
    before = repr((state.occupancy.volumes.users, state.occupancy.volumes.on_node))
    mark = state.occupancy.mark()
    state.occupancy.evict("t/user", here=True)
    state.occupancy.place("t/user", "b", ())
    state.occupancy.place("t/g-0", "a", ())
    state.occupancy.rollback(mark)
    assert repr((state.occupancy.volumes.users, state.occupancy.volumes.on_node)) == before


def test_the_snapshot_has_what_the_pods_refer_to() -> None:
    scene = _scene(_bound(), volumes={"v": Volume(), "w": Volume()})
    scene.storage = replace(scene.storage, claims={**scene.storage.claims, "t/other": _bound("w")})
    storage = scene.state().snapshot().storage
    assert list(storage.claims) == ["t/data"]
    assert list(storage.volumes) == ["v"]


def test_a_pod_that_is_gone_is_forgotten() -> None:
    state = _scene(_bound(), volumes={"v": Volume()}).state()
    pod: Pod = state.occupancy.pods["t/g-0"]
    state.remove_pod(pod.key)
    assert state.occupancy.volumes.storage().claims == {}


# By the rules one by one -------------------------------------------------------------------------

_ZONES = ("1", "2", None)


def _has_place(storage: Storage, pods: list[Pod], pod: Pod, node: str, zone: str | None) -> bool:
    """Whether kube-scheduler's filters accept a node, with no index."""
    return all(
        key in storage.claims
        and not (storage.claims[key].is_exclusive and any(key in other.volumes for other in pods))
        and _is_reached(storage, storage.claims[key], zone)
        for key in pod.volumes
    ) and _can_attach(storage, pods, pod, node)


def _is_in(selector: NodeSelector | None, zone: str | None) -> bool:
    return selector is None or (zone is not None and selector == _in_zone(zone))


def _is_reached(storage: Storage, claim: VolumeClaim, zone: str | None) -> bool:
    match claim.state:
        case VolumeClaimState.DELETED | VolumeClaimState.LOST:
            return False
        case VolumeClaimState.BOUND:
            return _is_in(storage.volumes[claim.volume].affinity, zone)
        case VolumeClaimState.UNBOUND:
            made = storage.classes[claim.class_name]
            return made.waits and (
                _is_available(storage, claim, zone) or _can_be_made(storage, claim, zone)
            )


def _is_available(storage: Storage, claim: VolumeClaim, zone: str | None) -> bool:
    return any(
        each.is_available
        and each.class_name == claim.class_name
        and each.size >= claim.size
        and _is_in(each.affinity, zone)
        for each in storage.volumes.values()
    )


def _can_be_made(storage: Storage, claim: VolumeClaim, zone: str | None) -> bool:
    made = storage.classes[claim.class_name]
    driver = storage.drivers.get(made.provisioner)
    has_room = (driver is None or not driver.has_capacity) or any(
        each.class_name == claim.class_name
        and each.size >= claim.size
        and zone is not None
        and each.nodes == with_labels({"zone": zone})
        for each in storage.capacities.values()
    )
    return made.provisioner != NO_PROVISIONER and _is_in(made.topologies, zone) and has_room


def _can_attach(storage: Storage, pods: list[Pod], pod: Pod, node: str) -> bool:
    def of_driver(keys: set[str], driver: str) -> set[str]:
        return {key for key in keys if _driver_of(storage, storage.claims[key]) == driver}

    limits = storage.limits[node].by_driver if node in storage.limits else {}
    here = {key for other in pods if other.state == Placed(node) for key in other.volumes}
    return all(
        not (new := of_driver(set(pod.volumes) - here, driver))
        or len(of_driver(here, driver)) + len(new) <= limit
        for driver, limit in limits.items()
    )


def _driver_of(storage: Storage, claim: VolumeClaim) -> str:
    if claim.state is VolumeClaimState.BOUND:
        return storage.volumes[claim.volume].driver
    return storage.classes[claim.class_name].provisioner


def _storage(random: Random) -> Storage:
    def zone() -> NodeSelector | None:
        return random.choice((None, _in_zone("1"), _in_zone("2")))

    classes = {
        "fast": StorageClass("csi", waits=True, topologies=zone()),
        "local": StorageClass(NO_PROVISIONER, waits=True),
        "now": StorageClass("csi"),
    }
    volumes = {
        f"v{index}": Volume(
            zone(),
            random.choice(("csi", "other")),
            random.choice(list(classes)),
            random.randint(5, 15),
            random.random() < 0.4,
        )
        for index in range(6)
    }
    claims = {}
    for index in range(6):
        state = random.choice([*VolumeClaimState, VolumeClaimState.BOUND, VolumeClaimState.BOUND])
        is_unbound = state is VolumeClaimState.UNBOUND
        claims[f"t/c{index}"] = VolumeClaim(
            state,
            "" if is_unbound else f"v{index}",
            random.choice(list(classes)),
            random.randint(5, 15),
            is_exclusive=random.random() < 0.2,
        )
    return Storage(
        claims,
        volumes,
        classes,
        {
            f"c{index}": StorageCapacity(
                random.choice(list(classes)),
                with_labels({"zone": random.choice("12")}),
                random.randint(5, 15),
            )
            for index in range(3)
        },
        {"csi": VolumeDriver(random.random() < 0.5)},
        {f"n{index}": AttachLimits({"csi": random.randint(1, 2)}) for index in range(2)},
    )


@pytest.mark.parametrize("seed", range(300))
def test_allowed_nodes_are_those_of_the_rules(seed: int) -> None:
    random = Random(seed)
    storage, scene = _storage(random), Scene().queue("q")
    zones = {f"n{index}": random.choice(_ZONES) for index in range(4)}
    for node, zone in zones.items():
        scene.node(node, labels={} if zone is None else {"zone": zone})
    usable = [key for key, claim in storage.claims.items() if claim.state is VolumeClaimState.BOUND]
    for index in range(random.randint(0, 4)):
        volumes = tuple(random.sample(usable, min(len(usable), random.randint(0, 2))))
        node = random.choice(list(zones))
        scene.pod(None, node, gpus=0, name=f"user-{index}", volumes=volumes)
    wanted = random.sample([*storage.claims, "t/absent"], random.randint(1, 2))
    scene.group("g").pod("g", gpus=0, name="new", volumes=tuple(wanted))
    scene.storage = storage
    state = scene.state()
    pod = state.occupancy.pods["t/new"]
    others = [other for other in state.occupancy.pods.values() if other.key != pod.key]
    rules = VolumeRules(state.occupancy, LabelledNodes(state.occupancy))
    names = rules.allowed(pod, frozenset(zones), StepBudget(UNLIMITED))
    assert names == {
        node for node, zone in zones.items() if _has_place(storage, others, pod, node, zone)
    }
