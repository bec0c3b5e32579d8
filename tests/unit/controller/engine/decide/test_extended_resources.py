"""Pods that ask for devices by the name of an extended resource, which a claim serves, or a plugin.

kube-scheduler makes the claim, and chooses the devices, only on the node that the pod is given.
"""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.placement.cluster.gpu import GPU as WHOLE
from carina_dra.resource import StringAttribute
from controller.engine.decide.cycle import Engine
from controller.engine.decide.queues.shares import cluster_total
from controller.engine.model.group import TopologyConstraint
from controller.engine.model.plan import Action, KeptPlace, Nomination
from controller.engine.model.pod import Evicting, PodNeeds
from controller.engine.model.reason import ExclusiveDevices, NoRoom, OverLimit, UncountedGpus
from controller.engine.model.resource import Gpus
from tests.unit.controller.engine.scene import (
    NOW,
    Scene,
    devices_of,
    evicted,
    gpus_of,
    nominated,
    started,
)

NAME = "nvidia.com/gpu"


def asks(
    scene: Scene, name: str, pods: int = 1, *, gpus: int = 1, least: int | None = None, **more: Any
) -> Scene:
    """Adds a group whose pods ask for GPUs by the extended resource."""
    scene.waits(name, pods, gpus=gpus, least=least, needs=_needs(gpus), **more)
    for index in range(pods):
        key = f"{name}-{index}"
        planned = ((NAME, f"t/{key}"),)
        scene.pods[key] = replace(scene.pods[key], planned=planned)
    return scene


def _asks_for_two(scene: Scene, other: str) -> Scene:
    """Adds a pod that asks for a GPU, and for a device by the name of another resource."""
    needs = PodNeeds(mapped=((NAME, 1), (other, 1)))
    planned = ((NAME, "t/gpu"), (other, "t/other"))
    scene.claim("gpu").claim("other").group("job")
    return scene.pod("job", claims=("gpu", "other"), needs=needs, planned=planned)


def _needs(gpus: int) -> PodNeeds:
    return PodNeeds(mapped=((NAME, gpus),))


def _by_plugin(gpus: int) -> dict[str, Any]:
    return {"extended": {NAME: gpus}}


def _gpus_counted(scene: Scene, model: str = "", product: str = "", **entitlement: Any) -> Scene:
    """Has devices be GPUs of a product, and the queue count GPUs of a model, or all."""
    attributes = {"type": StringAttribute("gpu"), "productName": StringAttribute(product)}
    for name, published in scene.slices.items():
        devices = (replace(device, attributes=attributes) for device in published.spec.devices)
        spec = replace(published.spec, devices=tuple(devices))
        scene.slices[name] = replace(published, spec=spec)
    return scene.queue("q", resource=Gpus(model), **entitlement)


# By a claim ---------------------------------------------------------------------------------------


def test_pod_gets_devices_where_no_device_plugin_offers_them() -> None:
    plan = asks(Scene().node("n", 4).queue("q"), "job").plan()
    assert started(plan) == {"job-0": "n"}
    assert devices_of(plan, "job-0") == ["gpu-0"]


def test_node_on_which_the_plugin_offers_none_serves_it_by_a_claim() -> None:
    plan = asks(Scene().node("n", 4, **_by_plugin(0)).queue("q"), "job").plan()
    assert devices_of(plan, "job-0") == ["gpu-0"]


def test_devices_are_those_that_kube_scheduler_chooses() -> None:
    scene = Scene().node("n", 4).queue("q").runs("other", "n", gpus=1)
    scene.claims["other-0"] = replace(
        scene.claims["other-0"],
        status=replace(scene.claims["other-0"].status, allocation=gpus_of("n", 2)),
    )
    assert devices_of(asks(scene, "job", gpus=2).plan(), "job-0") == ["gpu-0", "gpu-1"]


def test_gang_starts_whole_or_not_at_all() -> None:
    scene = Scene().node("a", 2).node("b", 2).queue("q")
    assert len(started(asks(scene, "job", 4).plan())) == 4
    more = Scene().node("a", 2).node("b", 2).queue("q")
    assert not started(asks(more, "job", 5).plan())


def test_gang_with_a_topology_is_in_one_domain() -> None:
    scene = Scene().queue("q")
    scene.topologies = {"racks": ("rack",)}
    for name, rack in (("a", "r1"), ("b", "r2"), ("c", "r2")):
        scene.node(name, 2, labels={"rack": rack})
    asks(scene, "job", 4)
    root = replace(scene.groups["job"].root, topology=TopologyConstraint("racks", required="rack"))
    scene.groups["job"] = replace(scene.groups["job"], root=root)
    assert set(started(scene.plan()).values()) == {"b", "c"}


def test_it_is_charged_like_a_claim() -> None:
    scene = _gpus_counted(Scene().node("n", 8), quota=None, limit=2 * WHOLE)
    plan = asks(scene, "job", 3, least=1).plan()
    assert len(started(plan)) == 2
    assert OverLimit("q", Gpus(), 2 * WHOLE, 2 * WHOLE, WHOLE) in plan.waiting["job"]


def test_pod_may_have_claims_of_its_own_beside() -> None:
    scene = asks(Scene().node("n", 4).queue("q"), "job", gpus=2)
    scene.claim("own", 1)
    pod = scene.pods["job-0"]
    scene.pods["job-0"] = replace(pod, claims=("t/own", *pod.claims))
    start, *_ = scene.plan().starts
    assert {claim: len(of.devices.results) for claim, of in start.allocations} == {
        "t/own": 1,
        "t/job-0": 2,
    }


def test_it_reclaims_what_others_have_beyond_their_share() -> None:
    scene = Scene(actions=(Action.RECLAIM,)).node("n", 2)
    scene.queue("q", quota=2).queue("r", quota=0)
    scene.runs("lent", "n", "n", queue="r", least=0)
    plan = asks(scene, "job").plan()
    assert evicted(plan) == ["lent-1"]
    assert nominated(plan) == {"job-0": "n"}


def test_it_gives_devices_back_like_others() -> None:
    scene = Scene(actions=(Action.RECLAIM,)).node("n", 2)
    scene.queue("q", quota=2).queue("r", quota=0)
    scene.runs("lent", "n", "n", queue="r", least=0)
    for index in range(2):
        key = f"lent-{index}"
        scene.pods[key] = replace(
            scene.pods[key], needs=_needs(1), planned=((NAME, f"t/{key}"),)
        )  # given, and kube-scheduler has not made the claim yet
    scene.waits("mine")
    assert evicted(scene.plan()) == ["lent-1"]


# By a device plugin -------------------------------------------------------------------------------


def test_device_plugin_serves_it_without_a_claim() -> None:
    plan = asks(Scene().node("n", **_by_plugin(4)).queue("q"), "job").plan()
    assert started(plan) == {"job-0": "n"}
    assert not devices_of(plan, "job-0")


def test_what_a_device_plugin_offers_is_counted() -> None:
    plan = asks(Scene().node("n", **_by_plugin(2)).queue("q"), "job", 3, least=1).plan()
    assert len(started(plan)) == 2
    (reason, *_) = plan.waiting["job"]
    assert isinstance(reason, NoRoom)
    assert reason.fell == ((NAME, 1),)


def test_both_kinds_of_nodes_serve_one_gang() -> None:
    scene = Scene().node("plugin", **_by_plugin(2)).node("claims", 2).queue("q")
    plan = asks(scene, "job", 4).plan()
    assert sorted(started(plan).values()) == ["claims", "claims", "plugin", "plugin"]


def test_nodes_with_a_device_plugin_come_first_since_claims_cannot_use_them() -> None:
    scene = Scene().node("claims", 2).node("plugin", **_by_plugin(2)).queue("q")
    assert started(asks(scene, "job").plan()) == {"job-0": "plugin"}


def test_nodes_whose_device_plugins_offer_most_of_a_pods_resources_come_first() -> None:
    nic = "example.com/nic"
    scene = Scene().node("one", 4, **_by_plugin(4)).queue("q")
    scene.node("two", extended={NAME: 4, nic: 4})
    assert started(_asks_for_two(scene, nic).plan()) == {"job-0": "two"}


@pytest.mark.parametrize("order", ["ab", "ba"])
def test_order_of_nodes_does_not_say_which_resource_a_device_plugin_serves(order: str) -> None:
    nic = "example.com/nic"
    offers = {"a": {nic: 4}, "b": {NAME: 4}}
    scene = Scene().queue("q")
    for name in order:
        scene.node(name, 4, extended=offers[name])
    assert started(_asks_for_two(scene, nic).plan()) == {"job-0": "a"}


def test_device_plugin_that_comes_to_a_node_or_goes_counts_at_once() -> None:
    scene = asks(Scene().node("n", 4).queue("q"), "job")
    state = scene.state()
    engine = Engine(state)
    assert devices_of(engine.decide(), "job-0") == ["gpu-0"]
    state.put_node(replace(scene.nodes["n"], **_by_plugin(4)))
    plan = engine.decide()
    assert started(plan) == {"job-0": "n"}
    assert not devices_of(plan, "job-0")
    state.put_node(scene.nodes["n"])
    assert devices_of(engine.decide(), "job-0") == ["gpu-0"]


def test_gpus_of_a_device_plugin_are_charged_once() -> None:
    scene = Scene().node("plugin", **_by_plugin(4)).node("claims", 4)
    _gpus_counted(scene, quota=None, limit=6 * WHOLE)
    plan = asks(scene, "job", 8, least=1).plan()
    assert len(started(plan)) == 6


def test_queue_that_does_not_count_gpus_of_a_plugin_gets_those_of_claims() -> None:
    scene = Scene().node("plugin", **_by_plugin(4)).node("claims", 4)
    _gpus_counted(scene, "H100", "H100", quota=None)
    assert started(asks(scene, "job").plan()) == {"job-0": "claims"}


def test_queue_that_counts_neither_is_told_so() -> None:
    scene = Scene().node("plugin", **_by_plugin(4)).queue("q", quota=None, resource=Gpus("H100"))
    assert asks(scene, "job").plan().waiting["job"] == (UncountedGpus("q"),)


@pytest.mark.parametrize(("node", "gpus"), [("claims", 4), ("plugin", 0)])
def test_what_waits_asks_for_as_many_gpus_of_either_kind(node: str, gpus: int) -> None:
    scene = Scene()
    if gpus:
        scene.node(node, gpus)
    else:
        scene.node(node, **_by_plugin(4))
    _gpus_counted(scene, quota=None)
    state = asks(scene, "job", 2, gpus=2).state()
    state.refresh()
    assert state.occupancy.accounts.requested["q"] == (4 * WHOLE,)
    assert cluster_total(state.occupancy, Gpus()) == 4 * WHOLE


def test_it_asks_for_no_less_once_devices_are_published() -> None:
    scene = _gpus_counted(Scene().node("plugin", **_by_plugin(4)).node("claims", 4), quota=None)
    published = scene.slices.pop("claims")
    state = asks(scene, "job", gpus=2).state()
    state.refresh()
    assert state.occupancy.accounts.requested["q"] == (2 * WHOLE,)
    state.put_devices(published)
    state.refresh()
    assert state.occupancy.accounts.requested["q"] == (2 * WHOLE,)


# What kube-scheduler does not know ----------------------------------------------------------------


def test_nothing_is_sent_where_kube_scheduler_would_take_what_is_promised() -> None:
    scene = Scene().node("n", 3).queue("q").queue("r", quota=None)
    scene.runs("leaves", "n", gpus=2, queue="r")
    scene.pods["leaves-0"] = replace(scene.pods["leaves-0"], state=Evicting("n"))
    scene.claims["leaves-0"] = replace(
        scene.claims["leaves-0"],
        status=replace(scene.claims["leaves-0"].status, allocation=gpus_of("n", 1, 2)),
    )
    scene.waits("promised", gpus=2)
    scene.memory = replace(
        scene.memory,
        nominations=(Nomination("t/promised-0", "n", (("t/promised-0", gpus_of("n", 0, 1)),)),),
    )
    plan = asks(scene, "job").plan()  # gpu-2 is left for it later; now it would get gpu-0
    assert not started(plan)
    assert nominated(plan) == {"promised-0": "n", "job-0": "n"}


def test_it_is_sent_where_kube_scheduler_takes_something_else() -> None:
    scene = Scene().node("n", 3).queue("q").queue("r", quota=None)
    scene.runs("leaves", "n", gpus=1, queue="r")
    scene.pods["leaves-0"] = replace(scene.pods["leaves-0"], state=Evicting("n"))
    scene.waits("promised", gpus=2)
    scene.memory = replace(
        scene.memory,
        nominations=(Nomination("t/promised-0", "n", (("t/promised-0", gpus_of("n", 0, 2)),)),),
    )
    plan = asks(scene, "job").plan()
    assert devices_of(plan, "job-0") == ["gpu-1"]
    assert started(plan) == {"job-0": "n"}


def test_nothing_is_sent_where_kube_scheduler_would_take_a_kept_place() -> None:
    scene = Scene().node("n", 2).node("m", 1).queue("q")
    scene.memory = replace(
        scene.memory,
        kept_places=(
            KeptPlace(
                "t/moved",
                "line",
                "",
                "n",
                PodNeeds(),
                ((0, gpus_of("n", 0)),),
                until=NOW + 60,
                queue="q",
            ),
        ),
    )
    assert started(asks(scene, "job").plan()) == {"job-0": "m"}


def test_in_exclusive_mode_it_is_refused_with_the_remedy() -> None:
    scene = _gpus_counted(Scene(exclusive=True).node("n", 4), quota=None)
    plan = asks(scene, "job").plan()
    assert not plan.starts
    reason = ExclusiveDevices("t/job-0", NAME)
    assert reason in plan.waiting["job"]
    assert "ResourceClaimTemplate" in reason.remedy


def test_in_exclusive_mode_device_plugins_serve_it() -> None:
    scene = Scene(exclusive=True).node("n", 4).node("plugin", **_by_plugin(4))
    plan = asks(_gpus_counted(scene, quota=None), "job").plan()
    assert started(plan) == {"job-0": "plugin"}


def test_in_exclusive_mode_devices_that_are_no_gpus_are_given() -> None:
    scene = Scene(exclusive=True, driver="other.example.com").node("n", 4).queue("q")
    assert started(asks(scene, "job").plan()) == {"job-0": "n"}
