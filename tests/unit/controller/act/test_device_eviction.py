"""Which pods are evicted for the taints of devices that they have as extended resources."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from itertools import count
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.errors import (
    ApiOperation,
    ServerError,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    DeviceTaintSelector,
    DeviceToleration,
    ObjectMeta,
    ResourceClaim,
    TaintEffect,
    TolerationOperator,
    decode,
)
from controller.act.device_eviction import BURST, DeviceEvictions
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.planned_claims import is_special
from controller.observe.pod import ObservedPod, read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

GRACE = 60.0
ADDED = datetime.fromtimestamp(NOW, UTC)
LOST = DeviceTaint("gpu.carina.dev/lost", TaintEffect.NO_EXECUTE, "xid-79", ADDED)
OPERATION = ApiOperation("evict", "pod")
REFUSED = TooManyRequests(OPERATION, "Cannot evict pod", 10)


class Cluster:
    """A node with GPUs, of which pods got some as extended resources."""

    def __init__(self, *, evicts_unqueued: bool = False, gpus: int = 4) -> None:
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        self.mirror.put_node(Scene().node("n1").nodes["n1"])
        self._slice = gpu_slice("n1", gpus)
        self.evictions = DeviceEvictions(self.mirror, evicts_unqueued, GRACE)
        self.now = NOW
        self.taint()

    def taint(self, *taints: DeviceTaint, gpu: int = 0) -> "Cluster":
        """Publishes the GPUs, of which this one has taints."""
        devices = list(self._slice.spec.devices)
        devices[gpu] = replace(devices[gpu], taints=taints)
        spec = replace(self._slice.spec, devices=tuple(devices))
        self.mirror.put_devices(replace(self._slice, spec=spec))
        return self

    def rule(self, effect: TaintEffect, pool: str) -> "Cluster":
        taint = DeviceTaint("example.com/out", effect, "", ADDED)
        spec = DeviceTaintRuleSpec(DeviceTaintSelector(pool=pool), taint=taint)
        self.mirror.put_devices(DeviceTaintRule(ObjectMeta(name="out"), spec=spec))
        return self

    def pod(
        self,
        name: str,
        gpu: int = 0,
        *,
        tolerations: tuple[DeviceToleration, ...] = (),
        controller: str | None = "own",
        **fields: Any,
    ) -> "Cluster":
        """A pod with a GPU in the claim that kube-scheduler has made for it."""
        body = pod_body(name, **{"gates": (), "given": "n1", "node": "n1", "owner": JOB, **fields})
        body["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": f"{name}-c"}
        self.mirror.put_pod(read_pod(body))
        uid = f"uid-{name}" if controller == "own" else controller
        owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
        owners = [] if controller is None else [{**owner, "controller": True}]
        self.claim(f"{name}-c", _tolerating(gpus_of("n1", gpu), tolerations), name, owners)
        return self

    def claim(
        self, name: str, allocation: Allocation, pod: str, owners: list[dict[str, Any]]
    ) -> None:
        body = claim_body(name, allocation=allocation, reserved_for=[pod])
        body["metadata"]["ownerReferences"] = owners
        self.mirror.put_claim(decode(ResourceClaim, body))

    def after(self, seconds: float) -> "Cluster":
        self.now = NOW + seconds
        return self

    def due(self) -> list[str]:
        """The pods that are evicted now, those past budgets with a mark."""
        self.mirror.refresh(self.now)
        return [
            f"{eviction.pod.name}{'!' if eviction.past_budgets else ''}"
            for eviction in self.evictions.due(self.now)
        ]

    def refuse(self, name: str, error: Exception = REFUSED) -> None:
        """Asks for the eviction of a pod, which fails."""
        pod = self.mirror.pods[f"t/{name}"]
        self.mirror.assume_evicted(pod.key)
        assert self.due() == []
        self.evictions.fail(pod, error, self.now)
        self.mirror.forget_eviction(pod, self.now + 5)


def _tolerating(allocation: Allocation, tolerations: tuple[DeviceToleration, ...]) -> Allocation:
    results = tuple(
        replace(result, tolerations=tolerations) for result in allocation.devices.results
    )
    return replace(allocation, devices=replace(allocation.devices, results=results))


def test_a_pod_of_a_queue_leaves_a_device_with_a_taint_that_evicts() -> None:
    cluster = Cluster().pod("p").pod("o", gpu=1).taint(LOST)
    assert cluster.due() == ["p"]


@pytest.mark.parametrize(("queue", "grace"), [("q", 600), (None, inf)])
def test_a_pod_gets_at_most_the_grace_of_its_queue(queue: str | None, grace: float) -> None:
    cluster = Cluster(evicts_unqueued=True).pod("p", queue=queue).taint(LOST)
    cluster.mirror.refresh(NOW)
    [eviction] = cluster.evictions.due(NOW)
    assert eviction.grace == grace


@pytest.mark.parametrize("effect", [TaintEffect.NONE, TaintEffect.NO_SCHEDULE])
def test_other_taints_evict_nobody(effect: TaintEffect) -> None:
    assert Cluster().pod("p").taint(replace(LOST, effect=effect)).due() == []


def test_a_taint_that_is_gone_evicts_nobody() -> None:
    assert Cluster().pod("p").taint(LOST).taint().due() == []


def test_a_claim_that_comes_after_the_taint_counts_too() -> None:
    cluster = Cluster().taint(LOST)
    assert cluster.due() == []
    assert cluster.pod("p").due() == ["p"]


def test_a_rule_evicts_too() -> None:
    assert Cluster().pod("p").rule(TaintEffect.NO_EXECUTE, pool="n1").due() == ["p"]
    assert Cluster().pod("p").rule(TaintEffect.NO_EXECUTE, pool="n2").due() == []
    assert Cluster().pod("p").rule(TaintEffect.NO_SCHEDULE, pool="n1").due() == []


@pytest.mark.parametrize("evicts", [False, True])
def test_a_pod_without_a_queue_leaves_only_by_the_setting(evicts: bool) -> None:
    cluster = Cluster(evicts_unqueued=evicts).pod("p", queue=None).taint(LOST)
    assert cluster.due() == (["p"] if evicts else [])


def test_a_claim_that_its_tenant_has_disowned_is_still_the_pods() -> None:
    assert Cluster().pod("p", controller=None).taint(LOST).due() == ["p"]


def test_a_claim_that_another_pod_controls_says_nothing() -> None:
    assert Cluster().pod("p", controller="other").taint(LOST).due() == []


def test_pods_that_name_a_claim_are_left_to_kubernetes() -> None:
    cluster = Cluster()
    cluster.claim("c", gpus_of("n1", 0), "p", [])
    body = pod_body("p", claims=["c"], gates=(), given="n1", node="n1")
    cluster.mirror.put_pod(read_pod(body))
    assert cluster.taint(LOST).due() == []


@pytest.mark.parametrize(
    "fields", [{"phase": "Succeeded"}, {"deleted": "2026-01-01T00:00:00Z"}], ids=str
)
def test_a_pod_that_ends_is_left_alone(fields: dict[str, Any]) -> None:
    assert Cluster().pod("p", **fields).taint(LOST).due() == []


def test_a_pod_whose_claim_is_gone_is_left_alone() -> None:
    cluster = Cluster().pod("p").taint(LOST)
    assert cluster.due() == ["p"]
    cluster.mirror.remove_claim(cluster.mirror.claims["t/p-c"])
    assert cluster.due() == []
    assert cluster.mirror.set_aside.counts() == {}


def _tolerates(seconds: int | None, key: str = "") -> DeviceToleration:
    return DeviceToleration(key, TolerationOperator.EXISTS, toleration_seconds=seconds)


def test_it_wakes_for_the_first_of_several_evictions() -> None:
    cluster = Cluster().taint(LOST)
    cluster.pod("p", tolerations=(_tolerates(30),)).pod("q", tolerations=(_tolerates(60),))
    assert cluster.after(1).due() == []
    assert cluster.evictions.wake == NOW + 30


def test_a_toleration_without_an_end_holds_for_ever() -> None:
    cluster = Cluster().pod("p", tolerations=(_tolerates(None),)).taint(LOST)
    assert cluster.after(1e9).due() == []
    assert cluster.evictions.wake is None


def test_the_shortest_toleration_counts_from_when_the_taint_was_added() -> None:
    tolerations = _tolerates(300), _tolerates(30, LOST.key), _tolerates(1, "other")
    cluster = Cluster().pod("p", tolerations=tolerations).taint(LOST)
    assert cluster.after(29).due() == []
    assert cluster.evictions.wake == NOW + 30
    assert cluster.after(30).due() == ["p"]
    assert cluster.evictions.wake is None


@pytest.mark.parametrize("turned", [False, True])
def test_the_first_of_several_taints_counts(turned: bool) -> None:
    later = replace(LOST, key="other", time_added=ADDED + timedelta(seconds=50))
    taints = (later, LOST) if turned else (LOST, later)
    cluster = Cluster().pod("p", tolerations=(_tolerates(100, LOST.key),)).taint(*taints)
    assert cluster.after(49).due() == []
    assert cluster.after(50).due() == ["p"]


@pytest.mark.parametrize(
    "error", [REFUSED, ServerError(OPERATION, "This pod has more than one budget")], ids=repr
)
def test_budgets_are_asked_again_and_overridden_after_the_grace(error: Exception) -> None:
    cluster = Cluster().pod("p").taint(LOST)
    assert cluster.due() == ["p"]
    cluster.refuse("p", error)
    assert cluster.after(4).due() == []
    assert cluster.evictions.wake == NOW + 5
    assert cluster.after(5).due() == ["p"]
    cluster.refuse("p", error)
    assert cluster.after(GRACE - 1).due() == ["p"]
    assert cluster.after(GRACE).due() == ["p!"]


@pytest.mark.parametrize(
    "error",
    [Unreachable(OPERATION, "nobody is there"), Unavailable(OPERATION, "it starts")],
    ids=repr,
)
def test_an_api_server_that_does_not_answer_overrides_no_budget(error: Exception) -> None:
    cluster = Cluster().pod("p").taint(LOST)
    cluster.refuse("p", error)
    assert cluster.after(2 * GRACE).due() == ["p"]


def _created_again(cluster: Cluster) -> None:
    """Another pod has the name of pod p."""
    cluster.mirror.remove_pod(cluster.mirror.pods["t/p"])
    body = pod_body("p", uid="new", version=2, gates=(), given="n1", node="n1")
    body["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "d"}
    cluster.mirror.put_pod(read_pod(body))
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "new", "controller": True}
    cluster.claim("d", gpus_of("n1", 0), "p", [owner])


def test_a_pod_that_was_created_again_is_asked_for_anew() -> None:
    cluster = Cluster().pod("p").taint(LOST)
    cluster.refuse("p")
    _created_again(cluster)
    assert cluster.after(2 * GRACE).due() == ["p"]


def test_a_refusal_that_comes_late_is_not_that_of_the_pod_that_was_created_again() -> None:
    cluster = Cluster().pod("p").taint(LOST)
    before = cluster.mirror.pods["t/p"]
    _created_again(cluster)

    cluster.evictions.fail(before, REFUSED, NOW)
    cluster.evictions.fail(cluster.mirror.pods["t/p"], REFUSED, NOW + 10)
    assert cluster.after(GRACE).due() == ["p"]
    assert cluster.after(GRACE + 10).due() == ["p!"]


def test_evictions_of_one_namespace_are_at_a_bounded_rate() -> None:
    cluster = Cluster(gpus=1)
    for index in range(2 * BURST):
        cluster.pod(f"p{index}")
    cluster.taint(LOST)
    assert len(cluster.due()) == BURST
    assert cluster.evictions.wake == pytest.approx(NOW + 0.2, rel=0, abs=0.001)
    assert len(cluster.after(1).due()) == 5


def test_no_rate_is_remembered_once_it_bounds_nothing() -> None:
    cluster = Cluster().pod("p").taint(LOST)
    assert cluster.due() == ["p"]

    assert cluster.taint().after(1).due() == []
    assert cluster.evictions == DeviceEvictions(cluster.mirror, False, GRACE)


def test_no_refusal_is_remembered_of_a_pod_that_may_stay() -> None:
    cluster = Cluster().pod("p").taint(LOST)
    cluster.refuse("p")

    assert cluster.taint().due() == []
    assert cluster.evictions == DeviceEvictions(cluster.mirror, False, GRACE)


def test_nothing_is_looked_at_where_no_device_is_tainted() -> None:
    cluster = Cluster().pod("p")
    assert cluster.due() == []
    assert cluster.mirror.state.tainted.evicted_claims() == []


# What is looked at -------------------------------------------------------------------------------


@pytest.fixture
def looks(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The pods that are looked at."""
    looked: list[str] = []

    def look(claim: ResourceClaim | None, pod: ObservedPod) -> bool:
        looked.append(pod.name)
        return is_special(claim, pod)

    monkeypatch.setattr("controller.act.device_eviction.is_special", look)
    return looked


def _holders(pods: int) -> Cluster:
    """Pods that all tolerate the taint of their device for a long time."""
    cluster = Cluster()
    for index in range(pods):
        cluster.pod(f"p{index}", tolerations=(_tolerates(3600),))
    return cluster.taint(LOST)


def test_a_claim_counts_whose_pool_is_tainted_later() -> None:
    cluster = Cluster().pod("p")
    assert cluster.due() == []
    assert cluster.taint(LOST).due() == ["p"]


def test_a_claim_is_looked_at_once(looks: list[str]) -> None:
    cluster = _holders(100)
    cluster.due()
    assert len(looks) == 100
    for seconds in range(10):
        cluster.after(seconds).due()
    assert len(looks) == 100


@pytest.mark.parametrize(
    ("change", "looked"),
    [
        (lambda it: it.pod("p1", tolerations=(_tolerates(1),), version=2), {"p1"}),
        (lambda it: it.pod("new"), {"new"}),
        (lambda it: it.mirror.remove_pod(it.mirror.pods["t/p1"]), set()),
        (lambda it: it.taint(LOST), set()),
        (lambda it: it.taint(LOST, gpu=1), {"p0", "p1", "p2"}),
        (lambda it: it.rule(TaintEffect.NO_EXECUTE, pool="n1"), {"p0", "p1", "p2"}),
        (lambda it: it.rule(TaintEffect.NONE, pool="n1"), set()),
    ],
    ids=[
        "a pod changes",
        "a pod comes",
        "a pod goes",
        "a slice as it was",
        "a taint of the pool",
        "a rule that evicts",
        "a rule that does not",
    ],
)
def test_only_what_has_changed_is_looked_at_again(
    looks: list[str], change: Callable[[Cluster], object], looked: set[str]
) -> None:
    cluster = _holders(3)
    cluster.due()
    looks.clear()
    change(cluster)
    cluster.due()
    assert set(looks) == looked


_VERSIONS = count(2)
_CHANGES: st.SearchStrategy[Callable[[Cluster], object]] = st.one_of(
    st.builds(
        lambda name, gpu, phase: lambda it: it.pod(name, gpu, phase=phase, version=next(_VERSIONS)),
        st.sampled_from("abc"),
        st.integers(0, 1),
        st.sampled_from(["Running", "Succeeded"]),
    ),
    st.builds(
        lambda taints, gpu: lambda it: it.taint(*taints, gpu=gpu),
        st.sampled_from([(), (LOST,), (replace(LOST, effect=TaintEffect.NO_SCHEDULE),)]),
        st.integers(0, 1),
    ),
    st.builds(
        lambda effect, pool: lambda it: it.rule(effect, pool),
        st.sampled_from([TaintEffect.NO_EXECUTE, TaintEffect.NONE]),
        st.sampled_from(["n1", "n2"]),
    ),
)


@examples(800)
@given(st.lists(st.tuples(_CHANGES, st.booleans()), max_size=10))
def test_what_is_due_does_not_depend_on_when_it_was_looked_at(
    changes: list[tuple[Callable[[Cluster], object], bool]],
) -> None:
    often, seldom = Cluster(), Cluster()
    for change, is_looked_at in changes:
        change(often)
        change(seldom)
        if is_looked_at:
            often.due()
    assert often.due() == seldom.due()
