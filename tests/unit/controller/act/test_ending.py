"""When the controller's own reservation of a claim is made, and when it is ended."""

from dataclasses import replace
from typing import Any, Final

from carina_dra.resource import Allocation, DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act import patch
from controller.act.commit import Acts, acts
from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Start
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.names import GROUP, RESERVATIONS
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import CREATED, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

GIVEN: Final = gpus_of("n1", 0)
OWN: Final = {"apiGroup": GROUP, "resource": RESERVATIONS, "name": "c", "uid": "uid-c"}


def claim(allocation: Allocation | None = None, *pods: str, **metadata: Any) -> ResourceClaim:
    """A claim of a queue, which the controller has reserved if it has devices."""
    body = claim_body(
        "c", allocation=allocation, reserved_for=pods, labels={QUEUE_LABEL: "q"}, **metadata
    )
    if allocation is not None:
        body["status"].setdefault("reservedFor", []).append(OWN)
    return decode(ResourceClaim, body)


def acts_on(of: ResourceClaim, start: Start) -> Acts:
    """What follows from a start, where a pod that waits refers to the claim."""
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
    mirror.put_queue("q", declared_queue())
    mirror.put_node(Scene().node("n1").nodes["n1"])
    mirror.put_devices(gpu_slice("n1", 4))
    mirror.put_claim(of)
    mirror.put_pod(read_pod(pod_body("p", claims=["c"])))
    mirror.refresh(NOW)
    plan = Engine(mirror.state).decide()
    return acts(replace(plan, starts=(start,), nominations=(), evictions=()), mirror)


def test_a_claim_that_stands_by_itself_is_reserved_as_it_is_allocated() -> None:
    done = acts_on(claim(), Start("t/resourceclaim/c", "n1", (("t/c", GIVEN),)))
    ((only,),) = [commit.claims for commit in done.commits]
    assert RESERVATIONS in [one.resource for one in only.consumers]
    assert done.endings == ()


def test_a_claim_that_only_a_pod_lets_start_is_not_reserved_for_itself() -> None:
    """The pod may be beyond the quota of its queue; the claim would hold its devices firmly."""
    done = acts_on(claim(), Start("t/p", "n1", (("t/c", GIVEN),)))
    ((only,),) = [commit.claims for commit in done.commits]
    assert [one.name for one in only.consumers] == ["p"]


def test_a_reservation_that_holds_stays() -> None:
    done = acts_on(claim(GIVEN), Start("t/p", "n1", ()))
    assert done.endings == ()
    assert [commit.group for commit in done.commits] == ["t/pod/p"]


def test_nobody_starts_on_a_claim_whose_reservation_ends() -> None:
    done = acts_on(claim(GIVEN, deletionTimestamp=CREATED), Start("t/p", "n1", ()))
    assert [each.key for each in done.endings] == ["t/c"]
    assert done.commits == ()


def test_others_keep_what_they_reserved_when_the_reservation_of_the_controller_ends() -> None:
    assert patch.unreserve(claim(GIVEN, "p"))["status"] == {
        "reservedFor": [{"resource": "pods", "name": "p", "uid": "uid-p"}]
    }


def test_devices_that_nobody_else_reserved_are_taken_back_with_the_reservation() -> None:
    of = claim(GIVEN)
    assert patch.unreserve(of) == patch.deallocate(of)
