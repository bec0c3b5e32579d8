"""What is free of a cluster's devices."""

from dataclasses import replace

import pytest

from carina_dra.resource import (
    CelSelector,
    DeviceClass,
    DeviceClassSpec,
    DeviceSelector,
    ObjectMeta,
    StringAttribute,
)
from controller.engine.free import Amount, Domain, FreeDevices, free_devices
from controller.engine.model.plan import CarriedOver, Nomination
from controller.engine.model.pod import Evicting
from tests.unit.controller.engine.scene import Scene, gpus_of


def free(scene: Scene) -> FreeDevices:
    (found,) = free_devices(scene.snapshot())
    return found


def test_what_no_claim_has_is_free() -> None:
    scene = Scene().node("a", 4).node("b", 8).queue("q").runs("g", "a", gpus=3)
    found = free(scene)
    assert found.amount == Amount(free=9, total=12)
    assert found.by_node == {"a": Amount(1, 4), "b": Amount(8, 8)}
    assert found.best_node == 8


def test_what_an_evicted_pod_still_holds_is_not_free() -> None:
    scene = Scene().node("a", 4).pod(None, "a", state=Evicting("a"), name="leaves", gpus=3)
    assert free(scene).amount == Amount(free=1, total=4)


def test_what_is_nominated_is_not_free() -> None:
    scene = Scene().node("a", 4).queue("q").waits("g")
    nomination = Nomination("t/g-0", "a", (("t/g-0", gpus_of("a", 0)),))
    scene.memory = CarriedOver(nominations=(nomination,))
    assert free(scene).amount == Amount(free=3, total=4)


def test_nodes_that_take_no_pods_are_left_out() -> None:
    scene = Scene().node("a", 4).node("b", 4, unschedulable=True)
    assert free(scene).by_node == {"a": Amount(4, 4)}


def test_models_are_counted_apart() -> None:
    scene = Scene().node("a", 2).node("b", 3).queue("q").runs("g", "b")
    for node, model in (("a", "H100"), ("b", "A100")):
        published = scene.slices[node]
        devices = tuple(
            replace(device, attributes={"productName": StringAttribute(model)})
            for device in published.spec.devices
        )
        scene.slices[node] = replace(published, spec=replace(published.spec, devices=devices))
    assert free(scene).by_model == {"A100": Amount(2, 3), "H100": Amount(2, 2)}


def test_the_best_domain_of_each_level_is_named() -> None:
    scene = Scene().queue("q")
    for number in range(4):
        scene.node(f"n{number}", 4, labels={"rack": f"r{number // 2}", "zone": "z"})
    scene.topologies = {"site": ("zone", "rack")}
    scene.runs("g", "n0")
    assert free(scene).best_domains == (Domain("zone", "z", 15), Domain("rack", "r1", 8))


def test_a_class_without_devices_is_shown_only_if_it_is_asked_for() -> None:
    scene = Scene().node("a", 1)
    selector = DeviceSelector(CelSelector("device.driver == 'other.example.com'"))
    other = DeviceClass(ObjectMeta(name="other"), DeviceClassSpec((selector,)))
    snapshot = replace(scene.snapshot(), classes=(*scene.snapshot().classes, other))
    assert [one.device_class for one in free_devices(snapshot)] == ["gpu"]
    (found,) = free_devices(snapshot, ["other"])
    assert found.amount == Amount(0, 0)


def test_a_class_that_does_not_exist_is_an_error() -> None:
    with pytest.raises(ValueError, match="there is no DeviceClass 'gpus'; the classes are: gpu"):
        free_devices(Scene().snapshot(), ["gpus"])
