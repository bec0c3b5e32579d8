"""Levels of enforcement that the claims of a group demand, and that devices do not have."""

from typing import Any

import pytest

from carina_dra.resource import DeviceClass, ResourceClaim, ResourceSlice, decode
from controller.engine.explain import explain, lines
from controller.engine.model.group import Group, PodSet
from controller.engine.model.pod import Pending, Pod, PodNeeds
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import Snapshot
from controller.engine.unmet_levels import unmet_levels
from tests.unit.controller.engine.test_explain import plan

DRIVER = "gpu.carina.dev"


def config(enforcement: Any, *requests: str, driver: str = DRIVER) -> dict[str, Any]:
    parameters = {
        "apiVersion": "resource.carina.dev/v1alpha1",
        "kind": "ShareConfig",
        "enforcement": enforcement,
    }
    named = {"requests": list(requests)} if requests else {}
    return {**named, "opaque": {"driver": driver, "parameters": parameters}}


def selector(attribute: str) -> dict[str, Any]:
    return {"cel": {"expression": f"device.attributes['{DRIVER}'].{attribute}"}}


def claim(name: str = "c", *configs: dict[str, Any], **request: Any) -> ResourceClaim:
    exactly = {"deviceClassName": "share", **request}
    devices = {"requests": [{"name": "gpu", "exactly": exactly}], "config": list(configs)}
    metadata = {"namespace": "a", "name": name, "uid": name}
    return decode(ResourceClaim, {"metadata": metadata, "spec": {"devices": devices}})


def device_class(*configs: dict[str, Any], **spec: Any) -> DeviceClass:
    return decode(
        DeviceClass, {"metadata": {"name": "share"}, "spec": {"config": list(configs), **spec}}
    )


def published(*having: bool) -> ResourceSlice:
    """A node with shared devices, which have a watchdog or not."""
    devices = [
        {
            "name": f"gpu-{minor}-share",
            "attributes": {
                "memoryEnforcementKernel": {"bool": False},
                "memoryEnforcementWatchdog": {"bool": has},
            },
        }
        for minor, has in enumerate(having)
    ]
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "pool": pool, "nodeName": "n", "devices": devices}
    return decode(ResourceSlice, {"metadata": {"name": "s"}, "spec": spec})


def notes(*claims: ResourceClaim, having: tuple[bool, ...] = (False,), **fields: Any) -> list[str]:
    snapshot = Snapshot(
        now=0,
        claims=claims,
        classes=(fields.pop("of_class", device_class()),),
        slices=(published(*having),),
    )
    return list(unmet_levels(snapshot, [found.key for found in claims]))


def test_a_level_that_no_device_has_is_named_with_who_demands_it() -> None:
    (note,) = notes(claim("c", config({"memory": "watchdog"})))
    assert note == (
        "claim a/c, request gpu of class share: a ShareConfig demands watchdog for memory, and no "
        "device has memoryEnforcementWatchdog: true"
    )


def test_a_level_that_a_class_demands_is_named_too() -> None:
    (note,) = notes(claim(), of_class=device_class(config({"memory": ["kernel"]})))
    assert "demands kernel for memory, and no device has memoryEnforcementKernel: true" in note


@pytest.mark.parametrize("of_class", [True, False])
def test_a_selector_that_reads_a_level_which_no_device_has_is_named(*, of_class: bool) -> None:
    selectors = [selector("memoryEnforcementKernel")]
    chosen = device_class(selectors=selectors) if of_class else device_class()
    asked = claim() if of_class else claim(selectors=selectors)
    (note,) = notes(asked, of_class=chosen)
    assert note == (
        "claim a/c, request gpu of class share: a selector reads memoryEnforcementKernel, which is "
        "true for no device"
    )


def test_a_demand_without_a_selector_is_named_where_only_some_devices_have_the_level() -> None:
    demanding = config({"memory": "watchdog"})
    (note,) = notes(claim("c", demanding), having=(True, False))
    assert "which 1 of 2 devices have, and no selector reads memoryEnforcementWatchdog" in note
    assert f"select devices by device.attributes['{DRIVER}'].memoryEnforcementWatchdog" in note

    selecting = claim("c", demanding, selectors=[selector("memoryEnforcementWatchdog")])
    assert notes(selecting, having=(True, False)) == []
    assert notes(claim("c", demanding), having=(True, True)) == []


def test_claims_that_are_alike_are_named_once() -> None:
    claims = [claim(f"c{number}", config({"memory": "watchdog"})) for number in range(100)]
    (note,) = notes(*claims)
    assert note.startswith("claim a/c0, ")


def test_a_configuration_for_another_request_or_driver_says_nothing() -> None:
    demand = {"memory": "watchdog"}
    assert notes(claim("c", config(demand, "other"), config(demand, driver="d"))) == []


@pytest.mark.parametrize(
    "enforcement", [None, 1, {"memory": "hard"}, {"memory": [{}] * 1000}, {"x" * 9000: 1}]
)
def test_a_configuration_that_cannot_be_read_demands_nothing(enforcement: Any) -> None:
    assert notes(claim("c", config(enforcement))) == []


def test_what_is_said_is_bounded() -> None:
    body = {
        "metadata": {"namespace": "a", "name": "c", "uid": "c"},
        "spec": {
            "devices": {
                "requests": [
                    {"name": f"r{number}", "exactly": {"deviceClassName": "share"}}
                    for number in range(32)
                ],
                "config": [config({"memory": "watchdog"})],
            }
        },
    }
    assert len(notes(decode(ResourceClaim, body))) == 8


def test_carina_why_says_it() -> None:
    snapshot = Snapshot(
        now=0,
        queues=(Queue("q"),),
        groups=(Group("a/train", "q", PodSet("", 1)),),
        pods=(Pod("a/train-0", PodNeeds(), Pending(), group="a/train", claims=("a/c",)),),
        claims=(claim("c", config({"memory": "watchdog"})),),
        classes=(device_class(),),
        slices=(published(False),),
    )
    text = list(lines(explain(snapshot, plan(), "a/train")))
    assert any(line.startswith("note: claim a/c, request gpu of class share") for line in text)
