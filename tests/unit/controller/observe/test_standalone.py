"""Claims that ask for devices by themselves: whose they are, who pays for them, and until when."""

from dataclasses import replace
from typing import Any, Final

import pytest

from carina_dra.kube.body import Body
from carina_dra.resource import DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.engine.files.namespaces import Namespaces
from controller.engine.files.priorities import Priorities
from controller.engine.model.label_selector import with_labels
from controller.engine.model.pod import Gated, Pending, Placed
from controller.engine.model.queue import QUEUE_LABEL, Hold
from controller.engine.model.snapshot import Snapshot
from controller.names import (
    EXPIRES_ANNOTATION,
    GROUP,
    PREEMPTIBLE_ANNOTATION,
    RESERVATIONS,
)
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from controller.observe.standalone import (
    StandaloneClaim,
    StandaloneClaims,
    Standing,
    standalone_claim,
)
from tests.unit.controller.bodies import CREATED, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

GIVEN: Final = gpus_of("n1", 0)
LABELS: Final = {QUEUE_LABEL: "q"}
OWN: Final = {"apiGroup": GROUP, "resource": RESERVATIONS, "name": "c", "uid": "uid-c"}
TEMPLATE: Final = {"resource.kubernetes.io/pod-claim-name": "gpus"}
OVER: Final = {EXPIRES_ANNOTATION: "1s"}
BAD_TIME: Final = {EXPIRES_ANNOTATION: "soon"}
DELETED: Final[Body] = {"deletionTimestamp": CREATED}
POD: Final = {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": True}
LATER: Final = 2_000_000_000.0
"""A Unix time after the creation of all claims."""


def claim(
    *, has: bool = False, own: bool = False, users: tuple[str, ...] = (), **metadata: Any
) -> ResourceClaim:
    """A claim with the label of a queue; `own`: with the controller's reservation."""
    allocation = GIVEN if has else None
    fields = {"labels": LABELS, **metadata}
    body = claim_body("c", allocation=allocation, reserved_for=users, **fields)
    if own:
        body["status"].setdefault("reservedFor", []).append(OWN)
    return decode(ResourceClaim, body)


def seen(of: ResourceClaim, *, may_use: bool = True) -> StandaloneClaim | None:
    """How a claim stands; `may_use`: whether its namespace may use the queue."""
    refusal = None if may_use else "not allowed"
    return standalone_claim(
        of, LATER, lambda *_: refusal, lambda _, priority: priority, lambda _: False
    )


@pytest.mark.parametrize(
    ("metadata", "is_standalone"),
    [
        ({}, True),
        ({"labels": {}}, False),
        ({"ownerReferences": [POD]}, False),
        ({"ownerReferences": [{**POD, "controller": False}]}, True),
        ({"ownerReferences": [{**POD, "apiVersion": "example.com/v1"}]}, True),
        ({"ownerReferences": [{**POD, "kind": "Notebook"}]}, True),
        ({"annotations": TEMPLATE}, True),
    ],
)
def test_a_claim_that_no_pod_controls_stands_by_itself(metadata: Body, is_standalone: bool) -> None:
    assert (seen(claim(**metadata)) is not None) == is_standalone


@pytest.mark.parametrize(
    ("of", "may_use", "standing"),
    [
        (claim(), True, Standing.WAITS),
        (claim(), False, Standing.REFUSED),
        (claim(annotations=BAD_TIME), True, Standing.REFUSED),
        (claim(annotations=OVER), True, Standing.ENDED),
        (claim(annotations=OVER), False, Standing.ENDED),
        (claim(**DELETED), True, Standing.ENDED),
        (claim(has=True, own=True), True, Standing.HOLDS),
        (claim(has=True, own=True, annotations=BAD_TIME), True, Standing.HOLDS),
        (claim(has=True, own=True), False, Standing.HOLDS),
        (claim(has=True, own=True, annotations=OVER), True, Standing.USED),
        (claim(has=True, own=True, **DELETED), True, Standing.USED),
        (claim(has=True), True, Standing.USED),
        (claim(has=True, annotations=BAD_TIME), True, Standing.USED),
        (claim(has=True), False, Standing.REFUSED),
        (claim(has=True, annotations=OVER), False, Standing.REFUSED),
    ],
)
def test_how_a_claim_stands(of: ResourceClaim, may_use: bool, standing: Standing) -> None:
    found = seen(of, may_use=may_use)
    assert found is not None
    assert found.standing is standing
    if standing is not Standing.ENDED:
        assert (found.refusal is not None) == (standing is Standing.REFUSED)


def test_a_claim_whose_time_is_over_says_so_until_it_is_deleted() -> None:
    late, deleted = seen(claim(annotations=OVER)), seen(claim(annotations=OVER, **DELETED))
    assert late is not None
    assert late.refusal is not None
    assert f"t/c: its time is over, by annotation {EXPIRES_ANNOTATION}: 1s" in late.refusal
    assert deleted is not None
    assert deleted.refusal is None


def test_the_message_names_the_claim_and_the_annotation() -> None:
    found = seen(claim(annotations=BAD_TIME))
    assert found is not None
    assert found.refusal is not None
    assert found.refusal.startswith(f"ResourceClaim t/c: annotation {EXPIRES_ANNOTATION}: ")


def mirror() -> Mirror:
    """A mirror with a node of four GPUs and a queue."""
    made = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    made.put_devices(DeviceClass(ObjectMeta(name="gpu")))
    made.put_node(Scene().node("n1").nodes["n1"])
    made.put_devices(gpu_slice("n1", 4))
    made.put_queue("q", declared_queue())
    return made


def shown(of: ResourceClaim, *, at: float = NOW) -> Mirror:
    """A mirror that knows a claim."""
    made = mirror()
    made.put_claim(of)
    made.refresh(at)
    return made


@pytest.mark.parametrize(
    ("of", "charged"),
    [
        (claim(), 0),
        (claim(has=True, own=True), 1),
        (claim(has=True, users=("p",)), 1),
        (claim(has=True, own=True, **DELETED), 1),
        (claim(has=True, users=("p",), **DELETED), 1),
    ],
)
def test_a_queue_is_charged_for_what_a_claim_has(of: ResourceClaim, charged: int) -> None:
    accounts = shown(of).state.occupancy.accounts
    assert accounts.allocated["q"] == accounts.firm["q"] == (charged,)


@pytest.mark.parametrize("preemptible", [True, False])
def test_what_a_claim_has_for_its_pods_only_is_as_firm_as_they_are(preemptible: bool) -> None:
    found = shown(claim(has=True, users=("p",)))
    declared = {PREEMPTIBLE_ANNOTATION: str(preemptible).lower()}
    user = pod_body("p", claims=["c"], gates=(), node="n1", given="n1", annotations=declared)
    found.put_pod(read_pod(user))
    found.refresh(NOW)
    accounts = found.state.occupancy.accounts
    assert (accounts.allocated["q"], accounts.firm["q"]) == ((1,), (0 if preemptible else 1,))
    assert found.state.occupancy.pods.keys() == {"t/p"}


def test_the_claim_is_charged_itself_while_only_pods_of_others_use_it() -> None:
    found = shown(claim(has=True, users=("p",)))
    others: tuple[dict[str, Any], ...] = (
        {"queue": "other", "gates": (), "node": "n1"},
        {"queue": None, "gates": (), "node": "n1"},
        {"gates": (), "node": "n1", "phase": "Succeeded"},
        {},
    )
    for number, fields in enumerate(others):
        found.put_pod(read_pod(pod_body(f"p{number}", claims=["c"], **fields)))
    found.refresh(NOW)
    assert "t/resourceclaim/c" in found.state.occupancy.pods
    user = read_pod(pod_body("p", claims=["c"], gates=(), node="n1"))
    found.put_pod(user)
    found.refresh(NOW)
    assert "t/resourceclaim/c" not in found.state.occupancy.pods
    found.remove_pod(user)
    found.refresh(NOW)
    assert "t/resourceclaim/c" in found.state.occupancy.pods


def test_devices_of_another_queue_than_the_namespace_may_use_are_in_use_of_nobody() -> None:
    found = mirror()
    others = Namespaces(names=("other",))
    found.put_queue("q", replace(declared_queue(), namespaces=others))
    found.put_claim(claim(has=True, users=("p",)))
    found.put_pod(read_pod(pod_body("p", queue=None, claims=["c"], gates=(), node="n1")))
    found.refresh(NOW)
    assert found.state.occupancy.accounts.allocated["q"] == (0,)
    assert found.state.occupancy.cluster.allocation("t/c") == GIVEN
    assert found.refusals().keys() == {"t/resourceclaim/c"}


def test_a_claim_of_an_emptied_queue_loses_its_reservation() -> None:
    found = shown(claim(has=True, own=True))
    known = declared_queue()
    found.put_queue("q", replace(known, queue=replace(known.queue, hold=Hold.DRAIN)))
    found.refresh(NOW)
    assert {each.standing for each in found.standalone.values()} == {Standing.USED}
    assert list(found.ending) == ["t/c"]


def test_a_claim_counts_with_the_priority_that_its_queue_allows_nearest_to_none() -> None:
    found = mirror()
    found.put_queue("q", replace(declared_queue(), priorities=Priorities(min=10)))
    found.put_claim(claim())
    found.refresh(NOW)
    assert found.refusals() == {}
    assert found.state.occupancy.groups["t/resourceclaim/c"].priority == 10


def test_a_claim_asks_once_its_namespace_has_the_labels_that_its_queue_wants() -> None:
    selector = with_labels({"tier": "a"})
    found = mirror()
    found.put_queue("q", replace(declared_queue(), namespaces=Namespaces(selector=selector)))
    found.put_claim(claim())
    found.refresh(NOW)
    before = {each.standing for each in found.standalone.values()}
    found.put_namespace("t", {"tier": "a"})
    assert found.refresh(NOW)
    assert before == {Standing.REFUSED}
    assert {each.standing for each in found.standalone.values()} == {Standing.WAITS}


def test_claims_of_a_namespace_are_not_those_of_one_whose_name_begins_alike() -> None:
    found = StandaloneClaims()
    other = claim()
    other = replace(other, metadata=replace(other.metadata, namespace="t2"))
    for of in (claim(), other):
        found.put(of, seen(of))
    assert found.in_namespace("t").keys() == {"t/c"}


def test_a_claim_whose_devices_are_gone_asks_again() -> None:
    found = shown(claim(has=True, users=("p",)))
    states = [found.state.occupancy.pods["t/resourceclaim/c"].state]
    found.put_claim(claim(resourceVersion="2"))
    found.refresh(NOW)
    states.append(found.state.occupancy.pods["t/resourceclaim/c"].state)
    assert states == [Placed("n1"), Pending()]


@pytest.mark.parametrize(
    ("of", "ends"),
    [
        (claim(has=True, own=True), False),
        (claim(has=True, users=("p",)), False),
        (claim(has=True, own=True, **DELETED), True),
        (claim(has=True, own=True, labels={}), True),
        (claim(has=True, own=True, ownerReferences=[POD]), True),
        (claim(has=True, users=("p",), labels={}), False),
    ],
)
def test_a_reservation_that_holds_no_standalone_claim_is_ended(
    of: ResourceClaim, ends: bool
) -> None:
    assert set(shown(of).ending) == ({"t/c"} if ends else set())


def test_a_reservation_is_ended_when_the_time_of_its_claim_is_over() -> None:
    found = shown(claim(has=True, own=True, annotations={EXPIRES_ANNOTATION: "8h"}), at=0)
    assert found.wake is not None
    assert not found.ending
    found.refresh(found.wake)
    assert set(found.ending) == {"t/c"}


def test_nothing_is_left_of_a_claim_that_is_gone() -> None:
    of = claim(has=True, own=True, **DELETED)
    found = shown(of)
    found.remove_claim(of)
    found.refresh(NOW)
    assert (found.ending, found.standalone, found.state.occupancy.pods) == ({}, {}, {})


def test_devices_of_an_ended_claim_are_charged_until_its_pods_have_ended() -> None:
    found = shown(claim(has=True, users=("p",), **DELETED))
    user = read_pod(pod_body("p", queue=None, claims=["c"], gates=(), node="n1"))
    found.put_pod(user)
    found.refresh(NOW)
    assert found.state.occupancy.accounts.allocated["q"] == (1,)
    found.remove_pod(user)
    found.put_claim(claim(resourceVersion="2", **DELETED))
    found.refresh(NOW)
    assert found.state.occupancy.accounts.allocated["q"] == (0,)


def test_a_claim_whose_start_has_failed_waits_and_keeps_what_it_has() -> None:
    for of, states in (
        (claim(), [Gated(), Pending()]),
        (claim(has=True, own=True), [Placed("n1"), Placed("n1")]),
    ):
        found = shown(of)
        found.hold_back("t/resourceclaim/c", NOW + 1, keeps=False)
        seen_states = []
        for at in (NOW, NOW + 1):
            found.refresh(at)
            seen_states.append(found.state.occupancy.pods["t/resourceclaim/c"].state)
        assert seen_states == states


def test_an_ended_claim_without_devices_asks_for_nothing() -> None:
    found = shown(claim(annotations=OVER), at=LATER)
    assert (found.state.occupancy.pods, found.state.occupancy.groups) == ({}, {})
