"""Claims that NVIDIA's DRA driver prepared before Carina took its place."""

from pathlib import Path
from typing import Any

import pytest

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
from tests.samples.nvidia_checkpoint import checkpoint, entry, result
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

    def prepared(self, claim: ClaimReference, *devices: str, boot_id: str = "boot-1") -> None:
        """NVIDIA's driver has prepared a claim."""
        self._claims[claim.uid] = entry(*(result(device, DRIVER) for device in devices))
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


def test_after_a_reboot_nothing_is_left_of_it(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-0", boot_id="boot-0")
    nvidia.prepared(OTHER, "gpu-0", boot_id="boot-0")

    assert world.claims().prepare(TRAIN, PATIENT)


def test_without_its_cdi_spec_nothing_is_left_of_it(world: World, nvidia: Nvidia) -> None:
    nvidia.prepared(TRAIN, "gpu-0")
    nvidia.spec(TRAIN).unlink()

    assert world.claims().prepare(TRAIN, PATIENT)


def test_a_claim_that_carina_prepared_stays_carinas(world: World, nvidia: Nvidia) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    nvidia.prepared(TRAIN, "gpu-0")

    assert world.claims().prepare(TRAIN, PATIENT)
    world.claims().unprepare(TRAIN, PATIENT)
    assert nvidia.spec(TRAIN).exists()


def test_with_a_damaged_checkpoint_nothing_is_prepared_while_there_are_specs(
    world: World, nvidia: Nvidia
) -> None:
    nvidia.prepared(OTHER, PARTITION)
    nvidia.checkpoint.write_text("{")

    failure = refusal(world, TRAIN)
    assert isinstance(failure, CheckpointUnusable)
    for words in (str(nvidia.checkpoint), "it is damaged", "delete the file when no pod"):
        assert words in str(failure)

    world.claims().unprepare(OTHER, PATIENT)
    assert world.reporter.partitions_left == []
    assert world.claims().prepare(TRAIN, PATIENT)


def test_a_spec_that_cannot_be_removed_is_named(world: World, nvidia: Nvidia) -> None:
    nvidia.cdi.mkdir()
    nvidia.spec(TRAIN).mkdir()

    with pytest.raises(ClaimError, match="delete the file manually") as caught:
        world.claims().unprepare(TRAIN, PATIENT)
    assert isinstance(caught.value.failure, NodeResourceFailed)
    assert str(nvidia.spec(TRAIN)) in str(caught.value)


def test_a_gpu_that_nvidias_driver_shares_is_given_to_no_claim_as_a_whole(
    world: World, nvidia: Nvidia
) -> None:
    shared = result("gpu-0", DRIVER, shareID="theirs")
    nvidia.prepared(OTHER, "gpu-0")
    nvidia.checkpoint.write_bytes(checkpoint({OTHER.uid: entry(shared)}))
    world.api["train"] = body(TRAIN, "gpu-0", shareID="ours")

    assert isinstance(refusal(world, TRAIN), HeldByNvidia)
