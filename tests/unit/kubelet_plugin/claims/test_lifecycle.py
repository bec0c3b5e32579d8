"""Prepare and unprepare: real locks and checkpoint, a node that may fail."""

from typing import Any

import pytest

from carina_dra.kube.errors import (
    Forbidden,
    NotFound,
    PathNotFound,
    Unreachable,
)
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, PreparedDevice
from kubelet_plugin.claims.failure import (
    AllocationRefused,
    ApiUnavailable,
    ClaimFailure,
    ClaimGone,
    DeviceHeld,
    DeviceUnhealthy,
    GpusNotRead,
    NodeReleased,
    NodeResourceFailed,
)
from kubelet_plugin.inventory.health import Draining, DriverVerdict
from tests.fakes.claims import PATIENT
from tests.samples.claims import UID, allocated, claim
from tests.samples.gpus import NOTICED
from tests.samples.resource_failures import FULL
from tests.unit.kubelet_plugin.claims.world import (
    GET,
    NO_NODE,
    NODE,
    OTHER,
    TRAIN,
    World,
    body,
    refusal,
)


def test_prepare_records_makes_and_answers(world: World) -> None:
    (allocated,) = world.claims().prepare(TRAIN, PATIENT)
    assert allocated == PreparedDevice("gpu", NODE, "gpu-0", ("id-gpu-0",), None)
    assert world.recorded() == {"train": ("gpu-0",)}
    assert set(world.node.made) == {UID}


def test_it_is_recorded_before_anything_is_made(world: World) -> None:
    seen: list[dict[str, tuple[str, ...]]] = []
    world.node.making = lambda _: seen.append(world.recorded())
    world.claims().prepare(TRAIN, PATIENT)
    assert seen == [{"train": ("gpu-0",)}]


def test_no_further_claim_is_prepared_while_the_node_is_released(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["other"] = body(OTHER, "gpu-1")
    world.is_released = True

    assert refusal(world, OTHER) == NodeReleased(OTHER)
    assert claims.prepare(TRAIN, PATIENT)  # it is prepared, and its pod may run
    assert claims.holders() == ("default/train",)
    claims.unprepare(TRAIN, PATIENT)
    assert claims.holders() == ()


def test_a_gpu_that_gets_no_new_work_serves_the_claims_that_are_prepared(world: World) -> None:
    drain = Draining(DriverVerdict("recovery-action-4", "has to be drained and reset"), NOTICED)
    claims = world.claims()
    first = claims.prepare(TRAIN, PATIENT)
    world.api["other"] = body(OTHER, "gpu-1")
    world.node.unfit = DeviceUnhealthy(claim(), "gpu-1", "GPU-1", drain)

    assert refusal(world, OTHER) == world.node.unfit
    assert world.recorded() == {"train": ("gpu-0",)}
    assert claims.prepare(TRAIN, PATIENT) == first
    del world.node.made[UID]
    claims.repair()
    assert set(world.node.made) == {UID}


def test_preparing_again_gives_the_same_and_writes_nothing(world: World) -> None:
    first = world.claims().prepare(TRAIN, PATIENT)
    before = world.checkpoint.stat()
    assert world.claims().prepare(TRAIN, PATIENT) == first
    after = world.checkpoint.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_nothing_is_prepared_by_what_the_gpus_were_a_minute_ago(world: World) -> None:
    world.inventory_age = 61.0

    assert refusal(world, TRAIN) == GpusNotRead(TRAIN, 61.0)
    assert world.asked == []
    assert not world.checkpoint.exists()

    world.inventory_age = 60.0
    world.claims().prepare(TRAIN, PATIENT)
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_prepared_claim_stays_prepared_and_can_end_while_the_gpus_cannot_be_read(
    world: World,
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.inventory_age = 61.0

    assert refusal(world, TRAIN) == GpusNotRead(TRAIN, 61.0)
    assert set(world.node.made) == {UID}

    world.claims().unprepare(TRAIN, PATIENT)
    assert world.recorded() == {}
    assert world.node.made == {}


def test_unprepare_undoes_prepare_without_asking_the_api(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "it is gone")
    claims.unprepare(TRAIN, PATIENT)
    assert (world.recorded(), world.node.made) == ({}, {})


def test_unprepare_of_an_unknown_claim_succeeds(world: World) -> None:
    world.claims().unprepare(TRAIN, PATIENT)
    world.claims().unprepare(TRAIN, PATIENT)


def test_a_failed_prepare_leaves_nothing_behind(world: World) -> None:
    world.claims().prepare(OTHER, PATIENT)
    world.node.failing = NO_NODE
    assert refusal(world, TRAIN) == NO_NODE
    assert world.recorded() == {"other": ("gpu-1",)}
    assert set(world.node.made) == {OTHER.uid}


def test_a_failed_prepare_that_cannot_be_rolled_back_stays_recorded(world: World) -> None:
    world.node.failing = NO_NODE
    world.node.stuck[UID] = NodeResourceFailed(TRAIN, FULL)
    assert refusal(world, TRAIN) == NO_NODE
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_failed_repeated_prepare_keeps_the_claim(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.node.failing = NO_NODE
    assert refusal(world, TRAIN) == NO_NODE
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_device_held_by_another_claim_is_refused_naming_both(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.api["other"] = body(OTHER, "gpu-0")
    failure = refusal(world, OTHER)
    assert failure == DeviceHeld(
        claim=claim(allocated("gpu-0"), uid=OTHER.uid, name="other"),
        device="gpu-0",
        holder=claim(allocated("gpu-0")),
        held="gpu-0",
    )
    for word in ("gpu-0", "default/train", "default/other", UID, OTHER.uid):
        assert word in str(failure)
    assert failure.retriable
    world.claims().unprepare(TRAIN, PATIENT)
    assert world.claims().prepare(OTHER, PATIENT)


@pytest.mark.parametrize(
    ("held", "wanted", "refused"),
    [
        ({}, {}, True),
        ({"adminAccess": True}, {}, False),
        ({}, {"adminAccess": True}, False),
        ({"shareID": "s1"}, {"shareID": "s2"}, True),
        ({"shareID": "s1"}, {}, True),
    ],
    ids=["exclusive", "admin first", "admin second", "two share IDs", "one share ID"],
)
def test_what_overlaps(
    world: World, held: dict[str, Any], wanted: dict[str, Any], refused: bool
) -> None:
    world.api["train"] = body(TRAIN, "gpu-0", **held)
    world.api["other"] = body(OTHER, "gpu-0", **wanted)
    world.claims().prepare(TRAIN, PATIENT)
    if refused:
        assert isinstance(refusal(world, OTHER), DeviceHeld)
    else:
        world.claims().prepare(OTHER, PATIENT)


@pytest.mark.parametrize(
    ("found", "kind", "words", "retriable"),
    [
        (NotFound(GET, "not found"), ClaimGone, "default/train does not exist", False),
        (Forbidden(GET, "no right"), ApiUnavailable, "no right", False),
        (Unreachable(GET, "refused"), ApiUnavailable, "cannot be read from the API", True),
        (PathNotFound(GET, "no such path"), ApiUnavailable, "no such path", True),
        (body(TRAIN), ClaimGone, "default/train is not allocated", False),
        (
            body(ClaimReference("new", "default", "train"), "gpu-0"),
            ClaimGone,
            "has UID new, not",
            False,
        ),
        (body(TRAIN, "gpu-0", pool="node-2"), ClaimGone, "of pool node-2 allocated", False),
        (
            body(TRAIN, "gpu-0", driver="other"),
            ClaimGone,
            "no device of driver gpu.carina.dev",
            False,
        ),
        (body(TRAIN, "gpu-0", request=5), ApiUnavailable, "results[0].request", True),
    ],
    ids=[
        "gone",
        "forbidden",
        "unreachable",
        "no path",
        "unallocated",
        "replaced",
        "pool",
        "driver",
        "odd",
    ],
)
def test_what_cannot_be_prepared_says_why(
    world: World, found: Any, kind: type[ClaimFailure], words: str, retriable: bool
) -> None:
    world.api["train"] = found
    failure = refusal(world, TRAIN)
    assert isinstance(failure, kind)
    assert words in str(failure)
    assert failure.retriable == retriable
    assert world.node.made == {}


def test_devices_here_and_elsewhere_in_one_claim_are_refused(world: World) -> None:
    both = body(TRAIN, "gpu-0", "gpu-1")
    both["status"]["allocation"]["devices"]["results"][1]["pool"] = "node-2"
    world.api["train"] = both
    assert isinstance(refusal(world, TRAIN), AllocationRefused)


def test_a_recorded_claim_is_answered_while_the_api_server_is_away(world: World) -> None:
    first = world.claims().prepare(TRAIN, PATIENT)
    world.api["train"] = Unreachable(GET, "refused")
    world.node.made.clear()
    assert world.claims().prepare(TRAIN, PATIENT) == first
    assert set(world.node.made) == {UID}


def test_a_new_allocation_of_the_same_claim_undoes_the_old(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    (old,) = world.node.made.values()
    world.api["train"] = body(TRAIN, "gpu-2")
    world.claims().prepare(TRAIN, PATIENT)
    assert world.recorded() == {"train": ("gpu-2",)}
    assert world.node.removed == [old]


def test_a_claim_that_was_recorded_without_its_names_gets_them_and_keeps_what_it_has(
    world: World,
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    named = body(TRAIN, "gpu-0")
    named["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "gpu"}
    world.api["train"] = named

    world.claims().prepare(TRAIN, PATIENT)

    assert world.node.removed == []
    checkpoint = CheckpointFile(world.checkpoint).load()
    assert checkpoint is not None
    assert checkpoint.claims[UID].pod_claim == world.node.made[UID].pod_claim == "gpu"


def test_the_name_of_an_alternative_is_not_reported(world: World) -> None:
    world.api["train"] = body(TRAIN, "gpu-0", request="gpu/big")
    (allocated,) = world.claims().prepare(TRAIN, PATIENT)
    assert allocated.request == "gpu"
