"""Repair: makes what recorded claims lack on the node, and removes what is nobody's."""

import time
from collections.abc import Collection
from dataclasses import replace
from typing import Any

import pytest

from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.drift import CdiSpecDrift
from kubelet_plugin.claims.failure import (
    ClaimError,
    NodeResourceFailed,
)
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.claims.lock import FileLock, LockError
from tests.fakes.claims import PATIENT
from tests.samples.claims import UID
from tests.samples.resource_failures import BUSY
from tests.unit.kubelet_plugin.claims.world import (
    NO_NODE,
    OTHER,
    TRAIN,
    World,
    body,
)


def test_repair_makes_what_is_missing_and_removes_what_no_claim_wants(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    prepared = world.node.made.pop(UID)
    world.node.made["orphan"] = replace(prepared, uid="orphan", name="orphan")
    world.claims().repair()
    assert set(world.node.made) == {UID}


def test_what_a_complete_claim_lost_is_reported_when_it_is_restored(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.node.made.clear()
    claims.repair()
    claims.repair()
    assert world.reporter.repaired == [("train", CdiSpecDrift(UID, missing=True))]


def test_what_a_reboot_or_a_kill_cost_a_claim_is_restored_without_a_report(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.node.made.clear()
    world.claims().repair()
    assert set(world.node.made) == {UID}
    assert world.reporter.repaired == []


def test_claims_that_cannot_be_restored_are_counted_until_they_are(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.node.made.clear()
    world.node.failing = NO_NODE
    claims.repair()
    world.node.failing = None
    claims.repair()
    assert [len(failed) for failed in world.reporter.failed_repairs] == [1, 0]


def test_a_leftover_that_cannot_be_removed_is_reported_once_and_stops_nothing_else(
    world: World,
) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    prepared = world.node.made.pop(UID)
    for uid in ("a", "b"):
        world.node.made[uid] = replace(prepared, uid=uid)
    busy = world.node.stuck["a"] = NodeResourceFailed(None, BUSY)
    claims.repair()
    claims.repair()
    assert set(world.node.made) == {UID, "a"}
    assert world.reporter.stuck == [("thing a", busy)]


def test_a_leftover_that_is_stuck_again_later_is_reported_again(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    orphan = replace(world.node.made[UID], uid="a")
    world.node.stuck["a"] = NodeResourceFailed(None, BUSY)
    for made in ({"a": orphan}, {}, {"a": orphan}):
        world.node.made = dict(made)
        claims.repair()
    assert len(world.reporter.stuck) == 2


def test_a_leftover_that_a_claim_needs_by_now_stays(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    orphan = world.node.made[OTHER.uid] = replace(world.node.made[UID], uid=OTHER.uid)
    leftovers = world.node.leftovers

    def found_before_a_call(live: Collection[NodeClaim]) -> tuple[Leftover, ...]:
        found = leftovers(live)
        claims.prepare(OTHER, PATIENT)
        return found

    monkeypatch.setattr(world.node, "leftovers", found_before_a_call)
    claims.repair()
    assert world.node.made[OTHER.uid] != orphan


def test_a_leftover_on_a_gpu_is_removed_under_the_gpus_lock(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = world.claims()
    claims.prepare(OTHER, PATIENT)
    world.node.made["orphan"] = replace(world.node.made[OTHER.uid], uid="orphan")
    leftover = Leftover("thing", "orphan", gpu="gpu-0")
    monkeypatch.setattr(world.node, "leftovers", lambda _: (leftover,))
    held = world.hold_gpu("gpu-0")
    waited: list[set[str]] = []

    def waiting(_: float) -> None:
        waited.append(set(world.node.made))
        held.close()

    world.pause = waiting
    claims.repair()
    assert waited == [{OTHER.uid, "orphan"}]
    assert set(world.node.made) == {OTHER.uid}


def test_a_leftover_on_no_gpu_is_removed_under_the_nodes_lock(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.node.made["orphan"] = replace(world.node.made[UID], uid="orphan")
    lock = FileLock(world.folder / "lock", clock=time.monotonic, pause=time.sleep)

    def removing(_: NodeClaim) -> None:
        with pytest.raises(LockError), lock.held(time.monotonic()):
            raise AssertionError("the node's lock is free")

    world.node.removing = removing
    claims.repair()
    assert set(world.node.made) == {UID}


def test_repair_of_a_node_that_lacks_nothing_removes_nothing(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    claims.prepare(OTHER, PATIENT)
    claims.repair()
    assert world.node.removed == []
    assert set(world.node.made) == {UID, OTHER.uid}


def test_repair_waits_for_a_call_on_the_gpu(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.node.made.clear()
    held = world.hold_gpu("gpu-0")
    world.pause = lambda _: held.close()
    claims.repair()
    assert set(world.node.made) == {UID}
    assert world.reporter.unrepaired == []


def test_the_number_of_prepared_claims_is_reported_at_start_and_with_each_change(
    world: World,
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.reporter.counts.clear()
    claims = world.claims()
    claims.repair()
    claims.prepare(OTHER, PATIENT)
    claims.unprepare(TRAIN, PATIENT)
    assert world.reporter.counts == [1, 2, 1]


def test_the_number_of_prepared_claims_is_reported_once_after_a_reboot(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.reporter.counts.clear()
    world.boot = "boot-2"
    claims = world.claims()
    claims.repair()
    claims.repair()
    assert world.reporter.counts == [1]


def test_the_number_of_prepared_claims_is_reported_once_after_a_rebuild(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.unlink()
    world.reporter.counts.clear()
    world.claims().repair()
    assert world.reporter.counts == [1]


def test_claims_that_another_plugin_process_prepares_are_counted_by_the_next_repair(
    world: World,
) -> None:
    claims = world.claims()
    claims.repair()
    world.claims().prepare(TRAIN, PATIENT)
    world.reporter.counts.clear()
    claims.repair()
    assert world.reporter.counts == [1]


def test_a_repeated_prepare_does_not_report_the_number_of_prepared_claims_again(
    world: World,
) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    claims.prepare(TRAIN, PATIENT)
    assert world.reporter.counts == [0, 1]


def test_repair_leaves_alone_what_a_call_has_replaced_meanwhile(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    claims.prepare(OTHER, PATIENT)
    world.api["other"] = body(OTHER, "gpu-2")

    def replace_other(claim: NodeClaim) -> None:
        if claim.name == "train":
            claims.prepare(OTHER, PATIENT)

    world.node.making = replace_other
    claims.repair()
    (device,) = world.node.made[OTHER.uid].devices
    assert device.device == "gpu-2"


def test_the_node_is_mended_without_the_api_server(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.asked.clear()
    world.node.made.clear()
    for _ in range(60):
        claims.repair()
    assert set(world.node.made) == {UID}
    assert world.asked == []


def test_a_reboot_loses_no_claim(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.node.made.clear()
    world.boot = "boot-2"
    world.claims().repair()
    assert set(world.node.made) == {UID}
    checkpoint = CheckpointFile(world.checkpoint).load()
    assert checkpoint is not None
    assert checkpoint.boot_id == "boot-2"


def test_what_cannot_be_repaired_is_reported_and_does_not_stop_the_rest(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    claims.prepare(OTHER, PATIENT)
    world.node.made.clear()

    def making(claim: Any) -> None:
        if claim.name == "train":
            raise ClaimError(NO_NODE)

    world.node.making = making
    claims.repair()
    assert world.reporter.unrepaired == [("train", NO_NODE)]
    assert set(world.node.made) == {OTHER.uid}
    assert world.recorded() == {"train": ("gpu-0",), "other": ("gpu-1",)}
