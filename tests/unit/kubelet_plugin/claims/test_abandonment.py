"""Claims that both the kubelet and the API server have forgotten are unprepared at last."""

from contextlib import ExitStack
from typing import Any

import pytest

from carina_dra.kube.errors import (
    ApiError,
    Forbidden,
    NotFound,
    PathNotFound,
    Unreachable,
)
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from tests.fakes.claims import PATIENT
from tests.unit.kubelet_plugin.claims.world import (
    GET,
    OTHER,
    TRAIN,
    World,
    body,
    record_of,
)


@pytest.mark.parametrize(
    "found",
    [
        NotFound(GET, "gone"),
        body(TRAIN),
        body(ClaimReference("new", "default", "train"), "gpu-0"),
        body(TRAIN, "gpu-0", pool="node-2"),
        body(TRAIN, "gpu-0", driver="other"),
    ],
    ids=["deleted", "deallocated", "made again", "allocated elsewhere", "another driver's"],
)
def test_a_claim_forgotten_by_kubelet_and_api_is_unprepared_at_last(
    world: World, found: dict[str, Any] | ApiError
) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = found
    world.record = record_of()
    claims.repair()
    world.now += 599
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    world.now += 1
    claims.repair()
    assert world.recorded() == {}
    assert world.node.made == {}
    assert world.reporter.abandoned == ["train"]


def test_a_claim_that_the_kubelet_holds_is_kept_whatever_the_api_says(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    for _ in range(10):
        claims.repair()
        world.now += 600
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize(
    "found",
    [
        body(TRAIN, "gpu-0"),
        Unreachable(GET, "refused"),
        PathNotFound(GET, "404 page not found"),
        Forbidden(GET, "no"),
        body(TRAIN, "gpu-0", request=5),
        body(OTHER, "gpu-1"),
    ],
    ids=["allocated", "unreachable", "another 404", "forbidden", "odd", "another claim"],
)
def test_a_claim_that_is_not_gone_is_kept_and_asked_about_rarely(
    world: World, found: dict[str, Any] | ApiError
) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = found
    world.record = record_of()
    world.asked.clear()
    for _ in range(60):
        claims.repair()
        world.now += 60
    assert world.recorded() == {"train": ("gpu-0",)}
    assert len(world.asked) == 10


def test_questions_of_many_nodes_about_claims_are_spread(world: World) -> None:
    world.now, world.random = 1000.0, 1.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.record = record_of()
    claims.repair()
    world.now += 600
    claims.repair()
    world.asked.clear()
    world.now += 449
    claims.repair()
    assert world.asked == []
    world.now += 1
    claims.repair()
    assert len(world.asked) == 1


def test_a_claim_that_was_prepared_again_is_forgotten_from_then_on(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.record = record_of()
    claims.repair()
    world.now += 600
    claims.unprepare(TRAIN, PATIENT)
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_record_that_is_unreadable_again_later_is_reported_again(world: World) -> None:
    claims = world.claims()
    for record in (UnreadableRecord("checksum"), record_of(), UnreadableRecord("checksum")):
        world.record = record
        claims.repair()
        claims.repair()
    assert world.reporter.record_unusable == ["checksum", "checksum"]


def test_a_claim_that_the_kubelet_comes_back_to_is_not_given_up(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    world.record = record_of()
    claims.repair()
    world.now += 500
    world.record = record_of(TRAIN)
    claims.repair()
    world.now += 500
    world.record = record_of()
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}


def test_nothing_is_given_up_while_the_kubelets_record_cannot_be_read(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    world.record = UnreadableRecord("checksum")
    for _ in range(5):
        claims.repair()
        world.now += 600
    assert world.recorded() == {"train": ("gpu-0",)}
    assert world.reporter.record_unusable == ["checksum"]
    world.record = record_of()
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}, "the ten minutes begin when it can be read"


def test_what_was_forgotten_before_the_record_was_unreadable_does_not_count(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    for record in (record_of(), UnreadableRecord("checksum"), record_of()):
        world.record = record
        claims.repair()
        world.now += 300
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize("record", [record_of(TRAIN), UnreadableRecord("damaged")])
def test_giving_up_is_checked_again_under_the_locks(
    world: World, record: KubeletRecord | UnreadableRecord
) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.record = record_of()
    claims.repair()
    world.now += 600

    def kubelet_comes_back() -> None:
        world.record = record

    world.api["train"] = NotFound(GET, "gone")
    world.reading = kubelet_comes_back
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    assert world.reporter.abandoned == []


def test_the_kubelets_record_is_read_after_waiting_for_the_locks(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    world.record = record_of()
    claims.repair()
    world.now += 600
    held = ExitStack()

    def kubelet_comes_back(_: float) -> None:
        world.record = record_of(TRAIN)
        held.close()

    world.reading = lambda: held.enter_context(world.hold_gpu("gpu-0"))
    world.pause = kubelet_comes_back
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    assert world.reporter.abandoned == []


def test_a_claim_that_is_unprepared_meanwhile_is_not_reported_as_abandoned(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.api["train"] = NotFound(GET, "gone")
    world.record = record_of()
    claims.repair()
    world.now += 600
    world.reading = lambda: claims.unprepare(TRAIN, PATIENT)
    claims.repair()
    assert world.reporter.abandoned == []
