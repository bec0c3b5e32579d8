"""A pod that asks by an extended resource has planned claims until kube-scheduler makes its own."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.kube.body import Body
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    DeviceTaint,
    DeviceTaintRule,
    DeviceTaintRuleSpec,
    ObjectMeta,
    ResourceClaim,
    TaintEffect,
    decode,
)
from controller.engine.files.file import read_snapshot, write_snapshot
from controller.engine.files.redaction import redacted
from controller.engine.free import Amount, free_devices
from controller.engine.model.pod import Pending, Placed, Pod, PodNeeds
from controller.names import TAINT
from controller.observe.mirror import Assumed, Mirror
from controller.observe.planned_claims import CHOICE_SECONDS
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import claim_body, pod_body
from tests.unit.controller.engine.scene import NOW, gpus_of
from tests.unit.controller.observe.test_mirror_view import mirror as with_gpus

NAME = "nvidia.com/gpu"
PLANNED = f"t/p/extended-resource/{NAME}"
CONTROLLED = [{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "uid-p", "controller": True}]


@pytest.fixture
def mirror() -> Mirror:
    seen = with_gpus()
    seen.put_devices(gpu_class())
    return seen


def gpu_class(name: str | None = NAME) -> DeviceClass:
    made = DeviceClass(ObjectMeta(name="gpu"))
    return replace(made, spec=replace(made.spec, extended_resource_name=name))


def asking(*, special: str | None = None, name: str = NAME, **fields: Any) -> Body:
    """A pod that asks for a GPU; `special` is the claim that its status names."""
    requests = {name: "1"}
    container = {"name": "main", "resources": {"limits": requests, "requests": requests}}
    body = pod_body("p", **fields, containers=[container])
    if special is not None:
        body["status"]["extendedResourceClaimStatus"] = {
            "resourceClaimName": special,
            "requestMappings": [
                {
                    "containerName": "main",
                    "resourceName": name,
                    "requestName": "container-0-request-0",
                }
            ],
        }
    return body


def put(mirror: Mirror, body: Body) -> Pod:
    """Has the mirror see a pod; as the engine knows it then."""
    mirror.put_pod(read_pod(body))
    mirror.refresh(NOW)
    return mirror.state.occupancy.pods["t/p"]


def special_claim(allocation: Allocation | None = None, **metadata: Any) -> ResourceClaim:
    owned = {"ownerReferences": CONTROLLED, **metadata}
    reserved = ["p"] if allocation else []
    body = claim_body("made", allocation=allocation, reserved_for=reserved, **owned)
    claim: ResourceClaim = decode(ResourceClaim, body)
    return claim


def send(mirror: Mirror, allocation: Allocation | None = None) -> None:
    """Has the controller give the pod its node, and remove the gate."""
    planned = {PLANNED: allocation or gpus_of("n1", 1)}
    start = {"t/p": Assumed("n1", {}, planned=planned)}
    mirror.assume("t/p", start["t/p"])
    mirror.refresh(NOW)
    mirror.put_pod(read_pod(asking(gates=(), given="n1", version=2)))
    mirror.forget(start)
    mirror.refresh(NOW)


def given(mirror: Mirror) -> list[str]:
    """The devices that the planned claim has."""
    allocation = mirror.state.occupancy.claims[PLANNED].status.allocation
    return [] if allocation is None else [one.device for one in allocation.devices.results]


def test_pod_that_waits_has_a_planned_claim(mirror: Mirror) -> None:
    pod = put(mirror, asking())
    assert pod.state == Pending()
    assert pod.claims == (PLANNED,)
    assert pod.planned == ((NAME, PLANNED),)
    assert pod.needs == PodNeeds(mapped=((NAME, 1),))
    [request] = mirror.state.occupancy.claims[PLANNED].spec.devices.requests
    assert request.name == "container-0-request-0"


def test_planned_claim_comes_after_those_that_exist(mirror: Mirror) -> None:
    mirror.put_claim(decode(ResourceClaim, claim_body("own")))
    assert put(mirror, asking(claims=["own"])).claims == ("t/own", PLANNED)


def test_name_that_no_class_has_is_served_by_device_plugins_only(mirror: Mirror) -> None:
    pod = put(mirror, asking(name="example.com/nic"))
    assert not pod.claims
    assert pod.needs.extended == (("example.com/nic", 1),)


def test_of_several_names_those_of_a_class_have_planned_claims(mirror: Mirror) -> None:
    requests = {NAME: "1", "example.com/nic": "2"}
    container = {"name": "main", "resources": {"limits": requests, "requests": requests}}
    pod = put(mirror, pod_body("p", containers=[container]))
    assert pod.planned == ((NAME, PLANNED),)
    assert pod.needs == PodNeeds(mapped=((NAME, 1),), extended=(("example.com/nic", 2),))


def test_pod_without_a_queue_has_none(mirror: Mirror) -> None:
    assert not put(mirror, asking(queue=None, gates=(), node="n1")).claims


def test_mapping_to_a_class_may_come_and_go(mirror: Mirror) -> None:
    mirror.put_devices(gpu_class(None))
    assert not put(mirror, asking()).planned
    mirror.put_devices(gpu_class())
    mirror.refresh(NOW)
    assert mirror.state.occupancy.pods["t/p"].planned
    mirror.put_devices(gpu_class(None))
    mirror.refresh(NOW)
    assert not mirror.state.occupancy.pods["t/p"].planned
    assert PLANNED not in mirror.state.occupancy.claims


def test_planned_claim_goes_with_its_pod(mirror: Mirror) -> None:
    put(mirror, asking())
    mirror.remove_pod(read_pod(asking()))
    mirror.refresh(NOW)
    assert not mirror.state.occupancy.claims


def test_planned_devices_count_until_kube_scheduler_has_chosen(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    assert mirror.state.occupancy.pods["t/p"].state == Placed("n1")
    assert given(mirror) == ["gpu-1"]


def test_claim_that_kube_scheduler_made_takes_its_place(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    mirror.put_claim(special_claim(gpus_of("n1", 0)))
    pod = put(mirror, asking(special="made", gates=(), given="n1", node="n1", version=3))
    assert pod.claims == ("t/made",)
    assert not pod.planned
    assert pod.needs == PodNeeds()
    assert PLANNED not in mirror.state.occupancy.claims
    assert mirror.state.occupancy.users["t/made"] == {"t/p": None}


def test_claim_is_not_special_unless_the_pod_names_it(mirror: Mirror) -> None:
    put(mirror, asking())
    annotation = {"resource.kubernetes.io/extended-resource-claim": "true"}
    mirror.put_claim(special_claim(annotations=annotation))
    mirror.refresh(NOW)
    assert mirror.state.occupancy.pods["t/p"].claims == (PLANNED,)


def test_claim_is_not_special_unless_the_pod_controls_it(mirror: Mirror) -> None:
    mirror.put_claim(special_claim(ownerReferences=[{**CONTROLLED[0], "uid": "other"}]))
    pod = put(mirror, asking(special="made", gates=(), given="n1", node="n1"))
    assert "t/made" not in pod.claims


def test_special_claim_may_have_other_owners_beside(mirror: Mirror) -> None:
    other = {"apiVersion": "v1", "kind": "ConfigMap", "name": "other", "uid": "other"}
    mirror.put_claim(special_claim(gpus_of("n1", 0), ownerReferences=[other, *CONTROLLED]))
    pod = put(mirror, asking(special="made", gates=(), given="n1", node="n1"))
    assert pod.claims == ("t/made",)


def test_claim_is_not_special_if_its_pod_owns_and_another_controls_it(mirror: Mirror) -> None:
    pod, other = {**CONTROLLED[0], "controller": False}, {**CONTROLLED[0], "uid": "other"}
    mirror.put_claim(special_claim(gpus_of("n1", 0), ownerReferences=[pod, other]))
    assert "t/made" not in put(mirror, asking(special="made", gates=(), given="n1")).claims


def test_special_claim_that_is_seen_after_its_pod_counts_as_soon_as_it_is(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    put(mirror, asking(special="made", gates=(), given="n1", version=3))
    assert mirror.state.occupancy.pods["t/p"].claims == (PLANNED,)
    mirror.put_claim(special_claim(gpus_of("n1", 0)))
    mirror.refresh(NOW)
    assert mirror.state.occupancy.pods["t/p"].claims == ("t/made",)


def test_planned_devices_count_until_the_allocation_of_the_special_claim_is_seen(
    mirror: Mirror,
) -> None:
    put(mirror, asking())
    send(mirror)
    mirror.put_claim(special_claim())  # as it is created; the watch of claims lags behind
    pod = put(mirror, asking(special="made", gates=(), given="n1", node="n1", version=3))
    assert pod.claims == (PLANNED,)
    assert given(mirror) == ["gpu-1"]


def test_special_claim_that_kube_scheduler_deletes_is_planned_again(mirror: Mirror) -> None:
    mirror.put_claim(special_claim(gpus_of("n1", 0)))
    put(mirror, asking(special="made", gates=(), given="n1"))
    mirror.remove_claim(special_claim(gpus_of("n1", 0)))
    mirror.refresh(NOW)
    assert mirror.state.occupancy.pods["t/p"].claims == (PLANNED,)
    assert given(mirror) == ["gpu-0"]


def test_pod_that_is_bound_without_a_claim_is_served_by_a_device_plugin(mirror: Mirror) -> None:
    pod = put(mirror, asking(gates=(), given="n1", node="n1"))
    assert not pod.claims
    assert pod.needs.extended == ((NAME, 1),)


def test_special_claim_of_a_pod_without_a_queue_is_in_use_as_long_as_it_runs(
    mirror: Mirror,
) -> None:
    mirror.put_claim(special_claim(gpus_of("n1", 0)))
    pod = put(mirror, asking(special="made", queue=None, gates=(), node="n1"))
    assert pod.claims == ("t/made",)
    assert list(mirror.state.occupancy.pods) == ["t/p"]  # nobody stands for users who have ended


def test_what_was_sent_to_kube_scheduler_is_planned_by_the_next_leader(mirror: Mirror) -> None:
    mirror.put_claim(decode(ResourceClaim, claim_body("other", allocation=gpus_of("n1", 0))))
    put(mirror, asking(gates=(), given="n1"))
    assert given(mirror) == ["gpu-1"]


def test_start_that_is_not_written_holds_no_devices(mirror: Mirror) -> None:
    put(mirror, asking())
    start = {"t/p": Assumed("n1", {}, planned={PLANNED: gpus_of("n1", 1)})}
    mirror.assume("t/p", start["t/p"])
    mirror.refresh(NOW)
    assert given(mirror) == ["gpu-1"]
    mirror.forget(start)
    mirror.refresh(NOW)
    assert not given(mirror)
    assert not list(mirror.choices())


def test_others_wait_for_the_choice_of_kube_scheduler_for_a_while(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    assert [choice.pod for choice in mirror.choices()] == ["t/p"]
    assert mirror.wake == NOW + CHOICE_SECONDS
    assert mirror.refresh(NOW + CHOICE_SECONDS)
    assert not list(mirror.choices())


def test_nobody_waits_for_a_pod_that_kube_scheduler_has_refused(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    put(mirror, asking(gates=(), given="n1", verdict="0/1 nodes are available", version=3))
    assert not list(mirror.choices())


def test_snapshot_with_planned_claims_survives_a_file(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    snapshot = mirror.state.snapshot()
    assert PLANNED in {claim.key for claim in snapshot.claims}
    assert read_snapshot("a.json", write_snapshot(snapshot).encode()) == snapshot
    assert redacted(snapshot).pods == snapshot.pods


def test_planned_devices_are_not_free(mirror: Mirror) -> None:
    put(mirror, asking())
    send(mirror)
    [found] = free_devices(mirror.state.snapshot())
    assert found.amount == Amount(free=3, total=4)


def test_taint_of_exclusive_mode_is_known_to_the_engine(mirror: Mirror) -> None:
    taint = DeviceTaint(key=TAINT, effect=TaintEffect.NO_SCHEDULE)
    rule = DeviceTaintRule(
        ObjectMeta(name="carina-exclusive"), spec=DeviceTaintRuleSpec(taint=taint)
    )
    mirror.put_devices(rule)
    assert mirror.state.settings.exclusive
    mirror.remove_devices(rule)
    assert not mirror.state.settings.exclusive
