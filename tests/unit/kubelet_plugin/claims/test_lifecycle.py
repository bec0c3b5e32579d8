"""The state machine behind the kubelet's calls: a real checkpoint, and needs that fail at will."""

import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.errors import ApiError, ApiOperation, Forbidden, NotFound, Unreachable
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimError, ClaimReference, GrantedDevice, PreparedClaim
from kubelet_plugin.claims.lifecycle import Claims
from kubelet_plugin.claims.lock import NodeLock
from tests.unit.kubelet_plugin.sample_claims import UID

DRIVER, NODE = "gpu.carina.dev", "node-1"
TRAIN = ClaimReference(UID, "default", "train")
OTHER = ClaimReference("b2222222-bbbb", "default", "other")
GET = ApiOperation.on("get", RESOURCE_CLAIMS, "default", "train")


def body(claim: ClaimReference, *devices: str, **result: Any) -> dict[str, Any]:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, **result}
        for device in devices
    ]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {
        "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "spec": {"devices": {"requests": []}},
        "status": status,
    }


@dataclass
class World:
    """The node and the API server, as a test wants them."""

    folder: Path
    api: dict[str, dict[str, Any] | ApiError] = field(default_factory=dict)
    made: dict[str, PreparedClaim] = field(default_factory=dict)
    failing: ClaimError | None = None
    making: Callable[[], object] = bool
    told: list[str] = field(default_factory=list)
    now: float = 0.0
    boot: str = "boot-1"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.jsonl"

    def claims(self) -> Claims:
        """A plugin that has just started."""
        return Claims(
            driver=DRIVER,
            pool=NODE,
            boot_id=self.boot,
            read_claim=self._read,
            checkpoint=CheckpointFile(self.checkpoint),
            lock=NodeLock(self.folder / "lock", clock=time.monotonic, pause=time.sleep),
            needs=self,
            reporter=self,
            clock=lambda: self.now or time.monotonic(),
        )

    def recorded(self) -> dict[str, tuple[str, ...]]:
        """Devices by claim, as they are on disk."""
        checkpoint = CheckpointFile(self.checkpoint).load()
        assert checkpoint is not None
        return {
            claim.name: tuple(device.device for device in claim.devices)
            for claim in checkpoint.claims.values()
        }

    def _read(self, claim: ClaimReference) -> Mapping[str, Any]:
        found = self.api[claim.name]
        if isinstance(found, ApiError):
            raise found
        return found

    # ClaimNeeds

    def make(self, claim: PreparedClaim) -> None:
        self.making()
        if self.failing is not None:
            raise self.failing
        self.made[claim.uid] = claim

    def unmake(self, uid: str) -> None:
        self.made.pop(uid, None)

    def found(self) -> Mapping[str, ClaimReference]:
        return {c.uid: ClaimReference(c.uid, c.namespace, c.name) for c in self.made.values()}

    def grants(self, claim: PreparedClaim) -> tuple[GrantedDevice, ...]:
        return tuple(
            GrantedDevice(d.request, d.pool, d.device, (f"id-{d.device}",), d.share_id)
            for d in claim.devices
        )

    # Reporter

    def checkpoint_set_aside(self, kept: str, reason: str, rebuilt: int) -> None:
        self.told.append(f"set aside, {rebuilt} rebuilt: {reason}")

    def repair_failed(self, claim: PreparedClaim, reason: str) -> None:
        self.told.append(f"repair of {claim.key} failed: {reason}")

    def claim_abandoned(self, claim: PreparedClaim) -> None:
        self.told.append(f"abandoned {claim.key}")

    def prepared_claims(self, count: int) -> None:
        pass


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, {"train": body(TRAIN, "gpu-0"), "other": body(OTHER, "gpu-1")})


def test_prepare_records_makes_and_answers(world: World) -> None:
    (granted,) = world.claims().prepare(TRAIN)
    assert granted == GrantedDevice("gpu", NODE, "gpu-0", ("id-gpu-0",), None)
    assert world.recorded() == {"train": ("gpu-0",)}
    assert set(world.made) == {UID}


def test_it_is_recorded_before_anything_is_made(world: World) -> None:
    seen: list[dict[str, tuple[str, ...]]] = []
    world.making = lambda: seen.append(world.recorded())
    world.claims().prepare(TRAIN)
    assert seen == [{"train": ("gpu-0",)}]


def test_preparing_again_gives_the_same_and_writes_nothing(world: World) -> None:
    first = world.claims().prepare(TRAIN)
    before = world.checkpoint.stat()
    assert world.claims().prepare(TRAIN) == first
    assert world.checkpoint.stat() == before


def test_unprepare_undoes_prepare_without_asking_the_api(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN)
    world.api["train"] = NotFound(GET, "it is gone")
    claims.unprepare(TRAIN)
    assert (world.recorded(), world.made) == ({}, {})


def test_unprepare_of_an_unknown_claim_succeeds(world: World) -> None:
    world.claims().unprepare(TRAIN)
    world.claims().unprepare(TRAIN)


def test_a_failed_prepare_leaves_nothing_behind(world: World) -> None:
    world.claims().prepare(OTHER)
    world.failing = ClaimError("no device node", may_pass=True)
    with pytest.raises(ClaimError, match="no device node"):
        world.claims().prepare(TRAIN)
    assert world.recorded() == {"other": ("gpu-1",)}
    assert set(world.made) == {OTHER.uid}


def test_a_failed_repeated_prepare_keeps_the_claim(world: World) -> None:
    world.claims().prepare(TRAIN)
    world.failing = ClaimError("no device node", may_pass=True)
    with pytest.raises(ClaimError):
        world.claims().prepare(TRAIN)
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_device_held_by_another_claim_is_refused_naming_both(world: World) -> None:
    world.claims().prepare(TRAIN)
    world.api["other"] = body(OTHER, "gpu-0")
    with pytest.raises(ClaimError) as caught:
        world.claims().prepare(OTHER)
    for word in ("gpu-0", "default/train", "default/other", UID, OTHER.uid):
        assert word in str(caught.value)
    assert caught.value.may_pass
    world.claims().unprepare(TRAIN)
    assert world.claims().prepare(OTHER)


@pytest.mark.parametrize(
    ("held", "wanted", "refused"),
    [
        ({}, {}, True),
        ({"adminAccess": True}, {}, False),
        ({}, {"adminAccess": True}, False),
        ({"shareID": "s1"}, {"shareID": "s2"}, False),
        ({"shareID": "s1"}, {}, True),
    ],
    ids=["exclusive", "admin first", "admin second", "two shares", "share and exclusive"],
)
def test_what_overlaps(
    world: World, held: dict[str, Any], wanted: dict[str, Any], refused: bool
) -> None:
    world.api["train"] = body(TRAIN, "gpu-0", **held)
    world.api["other"] = body(OTHER, "gpu-0", **wanted)
    world.claims().prepare(TRAIN)
    if refused:
        with pytest.raises(ClaimError, match="still held"):
            world.claims().prepare(OTHER)
    else:
        world.claims().prepare(OTHER)


@pytest.mark.parametrize(
    ("found", "problem", "may_pass"),
    [
        (NotFound(GET, "not found"), "default/train does not exist", False),
        (Forbidden(GET, "no right"), "no right", False),
        (Unreachable(GET, "refused"), "the API server does not answer", True),
        (body(TRAIN), "default/train is not allocated", False),
        (body(ClaimReference("new", "default", "train"), "gpu-0"), "has the UID new now", False),
        (body(TRAIN, "gpu-0", pool="node-2"), "of the pool node-2", False),
        (body(TRAIN, "gpu-0", driver="other"), "no device of gpu.carina.dev", False),
        (body(TRAIN, "gpu-0", request=5), "results[0].request", False),
    ],
    ids=["gone", "forbidden", "unreachable", "unallocated", "replaced", "pool", "driver", "odd"],
)
def test_what_cannot_be_prepared_says_why(
    world: World, found: Any, problem: str, may_pass: bool
) -> None:
    world.api["train"] = found
    with pytest.raises(ClaimError) as caught:
        world.claims().prepare(TRAIN)
    assert problem in str(caught.value)
    assert caught.value.may_pass == may_pass
    assert world.made == {}


def test_a_recorded_claim_is_answered_while_the_api_server_is_away(world: World) -> None:
    first = world.claims().prepare(TRAIN)
    world.api["train"] = Unreachable(GET, "refused")
    world.made.clear()
    assert world.claims().prepare(TRAIN) == first
    assert set(world.made) == {UID}


def test_a_new_allocation_of_the_same_claim_replaces_the_old(world: World) -> None:
    world.claims().prepare(TRAIN)
    world.api["train"] = body(TRAIN, "gpu-2")
    world.claims().prepare(TRAIN)
    assert world.recorded() == {"train": ("gpu-2",)}


def test_the_name_of_an_alternative_is_not_told(world: World) -> None:
    world.api["train"] = body(TRAIN, "gpu-0", request="gpu/big")
    (granted,) = world.claims().prepare(TRAIN)
    assert granted.request == "gpu"


def test_concurrent_calls_for_a_shared_claim_are_serialised(world: World) -> None:
    inside, most = 0, 0

    def making() -> None:
        nonlocal inside, most
        inside += 1
        most = max(most, inside)
        threading.Event().wait(0.02)
        inside -= 1

    world.making = making
    answers: list[tuple[GrantedDevice, ...]] = []
    claims = world.claims()
    calls = [
        threading.Thread(target=lambda: answers.append(claims.prepare(TRAIN))) for _ in range(5)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert most == 1
    assert answers == [answers[0]] * 5


def test_repair_makes_what_is_missing_and_removes_what_is_nobodys(world: World) -> None:
    world.claims().prepare(TRAIN)
    prepared = world.made.pop(UID)
    world.made["orphan"] = PreparedClaim("orphan", "default", "orphan", prepared.devices)
    world.claims().repair()
    assert set(world.made) == {UID}


def test_a_reboot_loses_no_claim(world: World) -> None:
    world.claims().prepare(TRAIN)
    world.made.clear()
    world.boot = "boot-2"
    world.claims().repair()
    assert set(world.made) == {UID}
    checkpoint = CheckpointFile(world.checkpoint).load()
    assert checkpoint is not None
    assert checkpoint.boot_id == "boot-2"


def test_what_cannot_be_repaired_is_told_and_does_not_stop_the_rest(world: World) -> None:
    world.claims().prepare(TRAIN)
    world.failing = ClaimError("the GPU is lost", may_pass=True)
    world.claims().repair()
    assert world.told == ["repair of default/train failed: the GPU is lost"]
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 50, b'{"version": 99}', b'{"version": 1, "claims": [{}]}']
)
def test_an_unreadable_checkpoint_is_kept_and_rebuilt(world: World, content: bytes) -> None:
    world.claims().prepare(TRAIN)
    world.checkpoint.write_bytes(content)
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    assert [told[:23] for told in world.told] == ["set aside, 1 rebuilt: c"]
    (kept,) = world.folder.glob("checkpoint.jsonl.unreadable-*")
    assert kept.read_bytes() == content


def test_a_lost_checkpoint_is_rebuilt(world: World) -> None:
    world.claims().prepare(TRAIN)
    world.checkpoint.unlink()
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize("error", [Unreachable(GET, "refused"), Forbidden(GET, "no right")])
def test_nothing_is_rebuilt_or_removed_while_claims_cannot_be_read(
    world: World, error: ApiError
) -> None:
    world.claims().prepare(TRAIN)
    world.checkpoint.write_bytes(b"{")
    world.api["train"] = error
    claims = world.claims()
    claims.repair()
    assert world.checkpoint.read_bytes() == b"{"
    assert set(world.made) == {UID}
    with pytest.raises(ClaimError, match="being rebuilt"):
        claims.prepare(OTHER)


def test_a_claim_long_gone_from_the_api_is_unprepared_at_last(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN)
    world.api["train"] = NotFound(GET, "gone")
    claims.repair()
    world.now += 599
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    world.now += 1
    claims.repair()
    assert world.recorded() == {}
    assert world.told == ["abandoned default/train"]


def test_a_claim_that_comes_back_is_not_abandoned(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN)
    there, world.api["train"] = world.api["train"], NotFound(GET, "gone")
    claims.repair()
    world.now += 500
    world.api["train"] = there
    claims.repair()
    world.api["train"] = NotFound(GET, "gone")
    world.now += 500
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}
