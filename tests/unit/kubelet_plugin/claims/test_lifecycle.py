"""The state machine behind the kubelet's calls: real locks and checkpoint, a node that may fail."""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.errors import ApiError, ApiOperation, Forbidden, NotFound, Unreachable
from kubelet_plugin.claims.call import Call
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, PreparedDevice
from kubelet_plugin.claims.failure import (
    AllocationRefused,
    ApiUnavailable,
    CallerGone,
    CheckpointUnusable,
    ClaimError,
    ClaimFailure,
    ClaimGone,
    DeviceHeld,
    LockUnavailable,
    NodeResourceFailed,
)
from kubelet_plugin.claims.kubelet_record import KubeletRecord, Unreadable
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.claims.lock import FileLock, GpuLocks
from tests.fakes.claims import PATIENT, FakeObserver, FakePreparer
from tests.samples.claims import UID, allocated, claim

DRIVER, NODE = "gpu.carina.dev", "node-1"
TRAIN = ClaimReference(UID, "default", "train")
OTHER = ClaimReference("b2222222-bbbb", "default", "other")
GET = ApiOperation.on("get", RESOURCE_CLAIMS, "default", "train")
NO_NODE = NodeResourceFailed(TRAIN, "no device node", retriable=True)
DEADLINE = 10.0


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


def record_of(*claims: ClaimReference) -> KubeletRecord:
    return KubeletRecord({claim.uid: claim for claim in claims})


@dataclass
class World:
    """The node, the kubelet's record and the API server, as a test wants them."""

    folder: Path
    api: dict[str, dict[str, Any] | ApiError] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    """Claims that were read from the API, with the patience in seconds."""
    record: KubeletRecord | Unreadable = field(default_factory=lambda: record_of(TRAIN, OTHER))
    node: FakePreparer = field(default_factory=FakePreparer)
    observer: FakeObserver = field(default_factory=FakeObserver)
    now: float = 0.0
    boot: str = "boot-1"
    pause: Callable[[float], object] = time.sleep
    reading: Callable[[], object] = lambda: None
    """Called while the API server is asked."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.jsonl"

    def claims(self) -> ClaimLifecycle:
        """A plugin that has just started."""
        return ClaimLifecycle(
            driver=DRIVER,
            pool=NODE,
            boot_id=self.boot,
            read_claim=self._read,
            read_kubelet_record=lambda: self.record,
            checkpoint=CheckpointFile(self.checkpoint),
            node_lock=FileLock(self.folder / "lock", clock=time.monotonic, pause=time.sleep),
            gpu_locks=GpuLocks(self.folder, clock=time.monotonic, pause=self.pause),
            preparer=self.node,
            observer=self.observer,
            clock=lambda: self.now or time.monotonic(),
            random=lambda: 0.0,
        )

    def recorded(self) -> dict[str, tuple[str, ...]]:
        """Devices by claim, as they are on disk."""
        checkpoint = CheckpointFile(self.checkpoint).load()
        assert checkpoint is not None
        return {
            claim.name: tuple(device.device for device in claim.devices)
            for claim in checkpoint.claims.values()
        }

    def _read(self, claim: ClaimReference, patience: float) -> Mapping[str, Any]:
        self.asked.append((claim.name, patience))
        self.reading()
        found = self.api[claim.name]
        if isinstance(found, ApiError):
            raise found
        return found


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, {"train": body(TRAIN, "gpu-0"), "other": body(OTHER, "gpu-1")})


def refusal(world: World, reference: ClaimReference) -> ClaimFailure:
    with pytest.raises(ClaimError) as caught:
        world.claims().prepare(reference, PATIENT)
    return caught.value.failure


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


def test_preparing_again_gives_the_same_and_writes_nothing(world: World) -> None:
    first = world.claims().prepare(TRAIN, PATIENT)
    before = world.checkpoint.stat()
    assert world.claims().prepare(TRAIN, PATIENT) == first
    assert world.checkpoint.stat() == before


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
    world.node.stuck[UID] = NodeResourceFailed(TRAIN, "read-only", retriable=True)
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
        (body(TRAIN), ClaimGone, "default/train is not allocated", False),
        (
            body(ClaimReference("new", "default", "train"), "gpu-0"),
            ClaimGone,
            "has the UID new now",
            False,
        ),
        (body(TRAIN, "gpu-0", pool="node-2"), ClaimGone, "of the pool node-2", False),
        (body(TRAIN, "gpu-0", driver="other"), ClaimGone, "no device of gpu.carina.dev", False),
        (body(TRAIN, "gpu-0", request=5), AllocationRefused, "results[0].request", False),
    ],
    ids=["gone", "forbidden", "unreachable", "unallocated", "replaced", "pool", "driver", "odd"],
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


def test_the_name_of_an_alternative_is_not_told(world: World) -> None:
    world.api["train"] = body(TRAIN, "gpu-0", request="gpu/big")
    (allocated,) = world.claims().prepare(TRAIN, PATIENT)
    assert allocated.request == "gpu"


def test_concurrent_calls_for_a_shared_claim_are_serialised(world: World) -> None:
    inside = threading.Semaphore(1)

    def making(_: object) -> None:
        assert inside.acquire(blocking=False), "two at once"
        os.sched_yield()
        inside.release()

    world.node.making = making
    answers: list[tuple[PreparedDevice, ...]] = []
    claims = world.claims()
    calls = [
        threading.Thread(target=lambda: answers.append(claims.prepare(TRAIN, PATIENT)))
        for _ in range(5)
    ]
    for call in calls:
        call.start()
    for call in calls:
        call.join()
    assert answers == [answers[0]] * 5


def test_a_slow_gpu_does_not_keep_claims_on_others_waiting(world: World) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def making(claim: Any) -> None:
        if claim.name == "train":
            begun.set()
            assert go_on.wait(DEADLINE)

    world.node.making = making
    claims = world.claims()
    slow = threading.Thread(target=claims.prepare, args=(TRAIN, PATIENT))
    slow.start()
    assert begun.wait(DEADLINE)
    claims.prepare(OTHER, PATIENT)
    claims.unprepare(OTHER, PATIENT)
    assert world.recorded() == {"train": ("gpu-0",)}
    go_on.set()
    slow.join()
    assert set(world.node.made) == {UID}


def test_an_allocation_that_was_read_before_a_long_wait_is_read_again(world: World) -> None:
    held = ExitStack()
    other = FileLock(world.folder / "gpu-0.lock", clock=time.monotonic, pause=time.sleep)
    held.enter_context(other.held(time.monotonic() + DEADLINE))

    def waiting(_: float) -> None:
        world.api["train"] = body(TRAIN, "gpu-2")
        world.now = time.monotonic() + 1.1
        held.close()

    world.pause = waiting
    (prepared,) = world.claims().prepare(TRAIN, PATIENT)
    assert prepared.device == "gpu-2"
    assert world.recorded() == {"train": ("gpu-2",)}


def test_the_api_server_is_not_asked_while_a_gpu_is_locked(world: World) -> None:
    held = ExitStack()
    other = FileLock(world.folder / "gpu-0.lock", clock=time.monotonic, pause=time.sleep)
    held.enter_context(other.held(time.monotonic() + DEADLINE))

    def waiting(_: float) -> None:
        world.now = time.monotonic() + 1.1
        held.close()

    def reading() -> None:
        if world.now:
            with other.held(time.monotonic()):
                pass

    world.pause, world.reading = waiting, reading
    world.claims().prepare(TRAIN, PATIENT)
    assert [name for name, _ in world.asked] == ["train", "train"]


def test_an_allocation_is_read_once_where_the_wait_is_short(world: World) -> None:
    held = ExitStack()
    other = FileLock(world.folder / "gpu-0.lock", clock=time.monotonic, pause=time.sleep)
    held.enter_context(other.held(time.monotonic() + DEADLINE))
    world.pause = lambda _: held.close()
    world.now = time.monotonic()
    world.claims().prepare(TRAIN, PATIENT)
    assert [name for name, _ in world.asked] == ["train"]


@pytest.mark.parametrize("operation", ["prepare", "unprepare"])
def test_nothing_is_done_for_a_caller_that_has_gone(world: World, operation: str) -> None:
    claims = world.claims()
    claims.prepare(OTHER, PATIENT)
    call = replace(PATIENT, abandoned=lambda: True)
    reference = TRAIN if operation == "prepare" else OTHER
    with pytest.raises(ClaimError) as caught:
        getattr(claims, operation)(reference, call)
    assert caught.value.failure == CallerGone(reference)
    assert world.recorded() == {"other": ("gpu-1",)}
    assert set(world.node.made) == {OTHER.uid}


def test_the_api_server_gets_time_by_what_is_left_of_the_call(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    for deadline, patience in [(1040.0, 20.0), (1008.0, 5.0), (1003.0, 3.0), (990.0, 1.0)]:
        world.asked.clear()
        world.api["train"] = Unreachable(GET, "refused")
        with pytest.raises(ClaimError):
            claims.prepare(TRAIN, Call(deadline, lambda: False))
        assert world.asked == [("train", patience)]


def test_a_recorded_claim_does_not_wait_long_for_the_api_server(world: World) -> None:
    world.now = 1000.0
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.asked.clear()
    claims.prepare(TRAIN, Call(1040.0, lambda: False))
    assert world.asked == [("train", 5.0)]


def test_repair_makes_what_is_missing_and_removes_what_is_nobodys(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    prepared = world.node.made.pop(UID)
    world.node.made["orphan"] = replace(prepared, uid="orphan", name="orphan")
    world.claims().repair()
    assert set(world.node.made) == {UID}


def test_a_leftover_that_cannot_be_removed_is_told_once_and_stops_nothing_else(
    world: World,
) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    prepared = world.node.made.pop(UID)
    for uid in ("a", "b"):
        world.node.made[uid] = replace(prepared, uid=uid)
    busy = world.node.stuck["a"] = NodeResourceFailed(None, "busy", retriable=True)
    claims.repair()
    claims.repair()
    assert set(world.node.made) == {UID, "a"}
    assert world.observer.stuck == [("thing a", busy)]


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


def test_what_cannot_be_repaired_is_told_and_does_not_stop_the_rest(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    claims.prepare(OTHER, PATIENT)
    world.node.made.clear()

    def making(claim: Any) -> None:
        if claim.name == "train":
            raise ClaimError(NO_NODE)

    world.node.making = making
    claims.repair()
    assert world.observer.unrepaired == [("train", NO_NODE)]
    assert set(world.node.made) == {OTHER.uid}
    assert world.recorded() == {"train": ("gpu-0",), "other": ("gpu-1",)}


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 50, b'{"version": 99}', b'{"version": 1, "claims": [{}]}']
)
def test_an_unreadable_checkpoint_is_kept_and_rebuilt(world: World, content: bytes) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(content)
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    (kept,) = world.folder.glob("checkpoint.jsonl.unreadable-*")
    ((named, reason, found),) = world.observer.rebuilt
    assert (named, found) == (str(kept), 1)
    assert reason.startswith(f"checkpoint {world.checkpoint}: line 1")
    assert kept.read_bytes() == content


def test_a_lost_checkpoint_is_rebuilt(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.unlink()
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize("error", [Unreachable(GET, "refused"), Forbidden(GET, "no right")])
def test_nothing_is_rebuilt_or_removed_while_claims_cannot_be_read(
    world: World, error: ApiError
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b"{")
    world.api["train"] = error
    claims = world.claims()
    claims.repair()
    assert world.checkpoint.read_bytes() == b"{"
    assert set(world.node.made) == {UID}
    with pytest.raises(ClaimError, match="being rebuilt") as caught:
        claims.prepare(OTHER, PATIENT)
    assert isinstance(caught.value.failure, CheckpointUnusable)


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
    assert world.observer.abandoned == ["train"]


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
        Forbidden(GET, "no"),
        body(TRAIN, "gpu-0", request=5),
    ],
    ids=["allocated", "unreachable", "forbidden", "odd"],
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
    world.record = Unreadable("checksum")
    for _ in range(5):
        claims.repair()
        world.now += 600
    assert world.recorded() == {"train": ("gpu-0",)}
    assert world.observer.record_unusable == ["checksum"]
    world.record = record_of()
    claims.repair()
    assert world.recorded() == {"train": ("gpu-0",)}, "the ten minutes begin when it can be read"


@pytest.mark.parametrize("record", [record_of(TRAIN), Unreadable("damaged")])
def test_giving_up_is_checked_again_under_the_locks(
    world: World, record: KubeletRecord | Unreadable
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
    assert world.observer.abandoned == []


def test_an_unreadable_checkpoint_is_kept_where_no_hard_links_are_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b"{")
    monkeypatch.setattr(os, "link", refused)
    world.claims().repair()
    (kept,) = world.folder.glob("checkpoint.jsonl.unreadable-*")
    assert kept.read_bytes() == b"{"
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_file_system_without_locks_fails_the_claim_and_says_so(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise OSError(37, "No locks available")

    monkeypatch.setattr("fcntl.flock", refused)
    failure = refusal(world, TRAIN)
    assert isinstance(failure, LockUnavailable)
    assert "No locks available" in str(failure)
