"""Claims that NVIDIA's DRA driver prepared before Carina took its place."""

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import patch
from uuid import UUID

import pytest

from carina_dra.kube.event import cut_note
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import (
    CheckpointUnusable,
    ClaimError,
    HeldByNvidia,
    NodeResourceFailed,
    PreparedByNvidia,
)
from kubelet_plugin.claims.kubelet_record import UnreadableRecord
from tests.fakes.claims import PATIENT
from tests.samples.nvidia_checkpoint import COMPLETED, STARTED, checkpoint, entry, result
from tests.unit.kubelet_plugin.claims.world import (
    DRIVER,
    OTHER,
    TRAIN,
    World,
    body,
    record_of,
    refusal,
)

PARTITION = "gpu-0-mig-1g10gb-19-6"


@pytest.fixture
def nvidia(world: World) -> "Nvidia":
    return Nvidia(world.folder)


class Nvidia:
    """What NVIDIA's driver has left on the node."""

    def __init__(self, folder: Path) -> None:
        self.checkpoint = folder / "checkpoint.json"
        self.cdi = folder / "cdi"
        self._claims: dict[str, dict[str, Any]] = {}

    def prepared(
        self,
        claim: ClaimReference,
        *devices: str,
        boot_id: str = "boot-1",
        state: str = COMPLETED,
    ) -> None:
        """NVIDIA's driver has prepared a claim, or was killed while it did."""
        results = (result(device, DRIVER) for device in devices)
        self._claims[claim.uid] = entry(*results, state=state)
        self.checkpoint.write_bytes(checkpoint(self._claims, boot_id=boot_id))
        self.cdi.mkdir(exist_ok=True)
        self.spec(claim).touch()

    def spec(self, claim: ClaimReference) -> Path:
        return self.cdi / f"k8s.{DRIVER}-claim_{claim.uid}.yaml"


def test_a_claim_that_nvidias_driver_prepared_is_not_prepared_again(
    world: World, nvidia: Nvidia
) -> None:
    nvidia.prepared(TRAIN, "gpu-0")

    assert refusal(world, TRAIN) == PreparedByNvidia(TRAIN)
    assert (world.recorded(), world.node.made) == ({}, {})
    for words in ("default/train", "NVIDIA's DRA driver", "delete all pods on this node"):
        assert words in str(PreparedByNvidia(TRAIN))


def test_a_folder_of_specs_that_cannot_be_listed_is_said(world: World, nvidia: Nvidia) -> None:
    world.claims().prepare(OTHER, PATIENT)
    nvidia.cdi.write_text("no folder")

    failure = refusal(world, TRAIN)

    assert isinstance(failure, NodeResourceFailed)
    assert failure.retriable
    assert str(nvidia.cdi) in str(failure)


def test_no_call_interns_the_name_of_a_claim(world: World) -> None:
    with patch.object(sys, "intern", wraps=sys.intern) as intern:
        world.claims().prepare(TRAIN, PATIENT)
        world.claims().unprepare(TRAIN, PATIENT)

    assert not [call.args[0] for call in intern.mock_calls if TRAIN.uid in call.args[0]]


def test_its_unprepare_succeeds_and_then_it_can_be_prepared(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-0")
    before = nvidia.checkpoint.read_bytes()

    world.claims().unprepare(TRAIN, PATIENT)
    world.claims().unprepare(TRAIN, PATIENT)

    assert not nvidia.spec(TRAIN).exists()
    assert nvidia.checkpoint.read_bytes() == before
    assert world.reporter.partitions_left == []
    assert world.claims().prepare(TRAIN, PATIENT)


def test_unprepare_reports_the_partitions_that_are_left(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-1", PARTITION)

    world.claims().unprepare(TRAIN, PATIENT)
    assert world.reporter.partitions_left == [("train", (PARTITION,))]

    world.claims().unprepare(TRAIN, PATIENT)
    assert world.reporter.partitions_left == [("train", (PARTITION,))]


@pytest.mark.parametrize("held", ["gpu-0", PARTITION, "gpu-0-of-another-kind"])
def test_its_gpu_is_not_given_to_another_claim_until_it_is_unprepared(
    world: World, nvidia: Nvidia, held: str
) -> None:
    nvidia.prepared(OTHER, held)

    failure = refusal(world, TRAIN)
    assert isinstance(failure, HeldByNvidia)
    assert (failure.device, failure.holder, failure.held) == ("gpu-0", OTHER.uid, held)
    world.claims().unprepare(OTHER, PATIENT)
    assert world.claims().prepare(TRAIN, PATIENT)


def test_a_claim_on_another_gpu_is_prepared(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(OTHER, "gpu-7")

    assert world.claims().prepare(TRAIN, PATIENT)


def test_files_of_a_claim_that_the_kubelet_has_forgotten_hold_nothing(
    world: World, nvidia: Nvidia
) -> None:
    nvidia.prepared(OTHER, "gpu-0")
    world.record = record_of(TRAIN)

    assert world.claims().prepare(TRAIN, PATIENT)


def test_while_the_kubelets_record_cannot_be_read_they_hold_their_devices(
    world: World, nvidia: Nvidia
) -> None:
    nvidia.prepared(OTHER, "gpu-0")
    world.record = UnreadableRecord("no folder")

    assert isinstance(refusal(world, TRAIN), HeldByNvidia)


def test_other_files_beside_the_specs_are_no_claims(world: World, nvidia: Nvidia) -> None:
    nvidia.cdi.mkdir()
    nvidia.spec(OTHER).with_suffix(".yaml.tmp").touch()
    (nvidia.cdi / f"k8s.other.example-claim_{OTHER.uid}.yaml").touch()
    world.record = UnreadableRecord("no folder")

    assert world.claims().prepare(TRAIN, PATIENT)


def test_after_a_reboot_nothing_is_left_of_it(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-0", boot_id="boot-0")
    nvidia.prepared(OTHER, "gpu-0", boot_id="boot-0")

    assert world.claims().prepare(TRAIN, PATIENT)


def test_without_its_cdi_spec_nothing_is_left_of_it(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-0")
    nvidia.spec(TRAIN).unlink()

    assert world.claims().prepare(TRAIN, PATIENT)


def test_a_claim_whose_prepare_was_interrupted_is_prepared(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-0", state=STARTED)
    nvidia.prepared(OTHER, "gpu-0", state=STARTED)

    assert world.claims().prepare(TRAIN, PATIENT)


def test_a_claim_that_carina_prepared_stays_carinas(world: World, nvidia: Nvidia) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    nvidia.prepared(TRAIN, "gpu-0")

    assert world.claims().prepare(TRAIN, PATIENT)


def test_a_claim_that_both_prepared_is_unprepared_for_both(world: World, nvidia: Nvidia) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    nvidia.prepared(TRAIN, "gpu-0", PARTITION)

    world.claims().unprepare(TRAIN, PATIENT)

    assert not nvidia.spec(TRAIN).exists()
    assert world.reporter.partitions_left == [("train", (PARTITION,))]
    assert world.claims().prepare(TRAIN, PATIENT)


def test_what_nvidias_driver_left_of_carinas_claim_holds_nothing(
    world: World, nvidia: Nvidia
) -> None:
    world.api["other"] = body(OTHER, "gpu-5")
    world.claims().prepare(OTHER, PATIENT)
    nvidia.prepared(OTHER, "gpu-0")

    assert world.claims().prepare(TRAIN, PATIENT)


def deleted(checkpoint: Path) -> None:
    checkpoint.unlink()


def damaged(checkpoint: Path) -> None:
    checkpoint.write_text("{")


def of_a_newer_version(checkpoint: Path) -> None:
    checkpoint.write_text('{"checksum": 1, "v3": {"preparedClaims": {}}}')


def without_the_claims(checkpoint: Path) -> None:
    checkpoint.write_text('{"checksum": 1, "v2": {"preparedClaims": {}}, "v3": {"claims": {}}}')


def huge(checkpoint: Path) -> None:
    os.truncate(checkpoint, 2**40)


def a_folder(checkpoint: Path) -> None:
    checkpoint.unlink()
    checkpoint.mkdir()


def a_pipe(checkpoint: Path) -> None:
    checkpoint.unlink()
    os.mkfifo(checkpoint)


UNUSABLE: dict[Callable[[Path], None], str] = {
    deleted: "No such file",
    damaged: "it is damaged",
    of_a_newer_version: "none of the versions v2, v1",
    without_the_claims: "does not have them",
    huge: "larger than 4194304 bytes",
    a_folder: "not a regular file",
    a_pipe: "not a regular file",
}


@pytest.mark.parametrize(("make", "problem"), UNUSABLE.items())
def test_without_the_checkpoint_no_claim_gets_devices_while_there_are_specs(
    world: World, nvidia: Nvidia, make: Callable[[Path], None], problem: str
) -> None:
    nvidia.prepared(OTHER, PARTITION)
    make(nvidia.checkpoint)

    failure = refusal(world, TRAIN)
    assert isinstance(failure, CheckpointUnusable)
    for words in (str(nvidia.checkpoint), problem, f"with these UIDs: {OTHER.uid}"):
        assert words in str(failure)


@pytest.mark.parametrize("make", UNUSABLE)
def test_without_the_checkpoint_a_claim_with_a_spec_is_not_prepared_again(
    world: World, nvidia: Nvidia, make: Callable[[Path], None]
) -> None:
    nvidia.prepared(TRAIN, PARTITION)
    make(nvidia.checkpoint)

    assert refusal(world, TRAIN) == PreparedByNvidia(TRAIN)


@pytest.mark.parametrize("make", UNUSABLE)
def test_without_the_checkpoint_unprepare_succeeds_and_ends_it(
    world: World, nvidia: Nvidia, make: Callable[[Path], None]
) -> None:
    nvidia.prepared(OTHER, PARTITION)
    make(nvidia.checkpoint)

    world.claims().unprepare(OTHER, PATIENT)

    assert world.reporter.partitions_left == []
    assert world.claims().prepare(TRAIN, PATIENT)


def test_without_the_checkpoint_specs_that_the_kubelet_has_forgotten_hold_nothing(
    world: World, nvidia: Nvidia
) -> None:
    nvidia.prepared(OTHER, "gpu-0")
    damaged(nvidia.checkpoint)
    world.record = record_of(TRAIN)

    assert world.claims().prepare(TRAIN, PATIENT)


def test_without_the_checkpoint_admin_access_is_given(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(OTHER, "gpu-0")
    damaged(nvidia.checkpoint)
    world.api["train"] = body(TRAIN, "gpu-0", adminAccess=True)

    assert world.claims().prepare(TRAIN, PATIENT)


def test_the_claims_of_a_large_node_are_named_within_the_length_of_an_event(
    world: World, nvidia: Nvidia
) -> None:
    claims = [ClaimReference(str(UUID(int=number)), "default", "x") for number in range(100)]
    for claim in claims:
        nvidia.prepared(claim, "gpu-7")
    damaged(nvidia.checkpoint)
    world.record = record_of(TRAIN, *claims)

    text = str(refusal(world, TRAIN))
    assert text.endswith(f"{claims[4].uid} and 95 more")
    assert cut_note(text) == text

    world.record = record_of(TRAIN, *claims[:5])
    assert str(refusal(world, TRAIN)).endswith(claims[4].uid)


def test_a_spec_that_cannot_be_removed_is_named(world: World, nvidia: Nvidia) -> None:
    nvidia.cdi.mkdir()
    nvidia.spec(TRAIN).mkdir()

    with pytest.raises(ClaimError, match="delete the file manually") as caught:
        world.claims().unprepare(TRAIN, PATIENT)
    assert isinstance(caught.value.failure, NodeResourceFailed)
    assert caught.value.failure.retriable
    assert str(nvidia.spec(TRAIN)) in str(caught.value)


def test_a_gpu_that_nvidias_driver_shares_is_given_to_no_claim_as_a_whole(
    world: World, nvidia: Nvidia
) -> None:
    shared = result("gpu-0", DRIVER, shareID="theirs")
    nvidia.prepared(OTHER, "gpu-0")
    nvidia.checkpoint.write_bytes(checkpoint({OTHER.uid: entry(shared)}))
    world.api["train"] = body(TRAIN, "gpu-0", shareID="ours")

    assert isinstance(refusal(world, TRAIN), HeldByNvidia)
