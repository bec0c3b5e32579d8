"""The state machine behind the kubelet's calls: real locks and checkpoint, a node that may fail."""

import errno
import os
import threading
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.errors import (
    ApiError,
    ApiOperation,
    Forbidden,
    NotFound,
    PathNotFound,
    Unreachable,
)
from kubelet_plugin.claims.call import Call
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
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
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.lifecycle import ClaimLifecycle, Leftover
from kubelet_plugin.claims.lock import FileLock, LockError
from tests.fakes.claims import PATIENT, FakePreparer, FakeReporter
from tests.fakes.lifecycle import lifecycle
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


class WatchedLock(FileLock):
    """A lock whose releases a test can act on."""

    released: Callable[[], object]

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        with super().held(deadline):
            yield
        self.released()


@dataclass
class World:
    """The node, the kubelet's record and the API server, as a test wants them."""

    folder: Path
    api: dict[str, dict[str, Any] | ApiError] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    """Claims that were read from the API, with the patience in seconds."""
    record: KubeletRecord | UnreadableRecord = field(
        default_factory=lambda: record_of(TRAIN, OTHER)
    )
    node: FakePreparer = field(default_factory=FakePreparer)
    reporter: FakeReporter = field(default_factory=FakeReporter)
    now: float = 0.0
    boot: str = "boot-1"
    pause: Callable[[float], object] = time.sleep
    """Called while a lock is waited for."""
    reading: Callable[[], object] = lambda: None
    """Called while the API server is asked."""
    answers: list[dict[str, Any] | ApiError] = field(default_factory=list)
    """What the API server answers first, whatever has changed since."""
    released: Callable[[], object] = lambda: None
    """Called when the node's lock was released."""
    random: float = 0.0

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.jsonl"

    def claims(self) -> ClaimLifecycle:
        """A plugin that has just started."""
        node_lock = WatchedLock(self.folder / "lock", clock=self._clock, pause=self._pause)
        node_lock.released = self.released
        return lifecycle(
            self.folder,
            driver=DRIVER,
            pool=NODE,
            boot_id=self.boot,
            read_claim=self._read,
            read_kubelet_record=lambda: self.record,
            node_lock=node_lock,
            pause=self._pause,
            preparer=self.node,
            reporter=self.reporter,
            clock=self._clock,
            random=lambda: self.random,
        )

    def hold_gpu(self, gpu: str) -> ExitStack:
        """Locks a GPU as another plugin process does, until what it gives is closed."""
        held = ExitStack()
        lock = FileLock(self.folder / f"{gpu}.lock", clock=time.monotonic, pause=time.sleep)
        held.enter_context(lock.held(time.monotonic() + DEADLINE))
        return held

    def recorded(self) -> dict[str, tuple[str, ...]]:
        """Devices by claim, as they are on disk."""
        checkpoint = CheckpointFile(self.checkpoint).load()
        assert checkpoint is not None
        return {
            claim.name: tuple(device.device for device in claim.devices)
            for claim in checkpoint.claims.values()
        }

    def recorded_by_0_1_0(self, claim: NodeClaim) -> None:
        """Records a claim as a plugin of version 0.1.0 does."""
        file = CheckpointFile(self.checkpoint)
        lock = FileLock(self.folder / "lock", clock=time.monotonic, pause=time.sleep)
        with lock.held(time.monotonic() + DEADLINE):
            checkpoint = file.load()
            assert checkpoint is not None
            file.store(checkpoint.with_claim(claim))

    def _clock(self) -> float:
        return self.now or time.monotonic()

    def _pause(self, seconds: float) -> object:
        return self.pause(seconds)

    def _read(self, claim: ClaimReference, patience: float) -> Mapping[str, Any]:
        self.asked.append((claim.name, patience))
        late = self.answers.pop() if self.answers else None
        self.reading()
        found = late or self.api[claim.name]
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
    after = world.checkpoint.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


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


def test_a_device_that_is_recorded_while_the_old_allocation_is_undone_is_refused(
    world: World,
) -> None:
    """Version 0.1.0, which may run beside, takes the node's lock but no GPU's."""
    world.claims().prepare(TRAIN, PATIENT)
    world.api["train"] = body(TRAIN, "gpu-1")
    world.node.removing = lambda _: world.recorded_by_0_1_0(
        claim(allocated("gpu-1"), uid=OTHER.uid, name="other")
    )
    failure = refusal(world, TRAIN)
    assert isinstance(failure, DeviceHeld)
    assert failure.holder.name == "other"
    assert world.recorded() == {"train": ("gpu-0",), "other": ("gpu-1",)}


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
    held = world.hold_gpu("gpu-0")

    def waiting(_: float) -> None:
        world.api["train"] = body(TRAIN, "gpu-2")
        world.now = time.monotonic() + 1.1
        held.close()

    world.pause = waiting
    (prepared,) = world.claims().prepare(TRAIN, PATIENT)
    assert prepared.device == "gpu-2"
    assert world.recorded() == {"train": ("gpu-2",)}


@pytest.mark.parametrize("ends", ["before", "after"])
def test_a_claim_is_not_unprepared_while_another_call_prepares_it(world: World, ends: str) -> None:
    """The other call begins when the node's lock is released for the first time.

    It ends before the unprepare goes on, or once that waits for the GPU or has ended.
    """
    preparing, go_on = threading.Event(), threading.Event()

    def making(_: object) -> None:
        preparing.set()
        assert go_on.wait(DEADLINE)

    world.node.making = making
    prepare = threading.Thread(target=world.claims().prepare, args=(TRAIN, PATIENT))
    releases = 0

    def begin_to_prepare() -> None:
        nonlocal releases
        releases += 1
        if releases == 1:
            prepare.start()
            assert preparing.wait(DEADLINE)
            if ends == "before":
                go_on.set()
                prepare.join(DEADLINE)

    world.released = begin_to_prepare
    world.pause = lambda _: go_on.set()
    _tried_again(world.claims(), TRAIN)
    go_on.set()
    prepare.join(DEADLINE)
    assert world.recorded().keys() == {made.name for made in world.node.made.values()}


def test_an_allocation_that_another_call_has_replaced_meanwhile_is_not_prepared(
    world: World,
) -> None:
    other = world.claims()

    def another_call_prepares_a_newer_allocation() -> None:
        if not world.node.made:
            world.reading = lambda: None
            world.api["train"] = body(TRAIN, "gpu-2")
            other.prepare(TRAIN, PATIENT)

    stale = world.api["train"]
    world.reading = another_call_prepares_a_newer_allocation
    world.answers = [stale]
    (prepared,) = world.claims().prepare(TRAIN, PATIENT)
    assert prepared.device == "gpu-2"
    assert world.recorded() == {"train": ("gpu-2",)}
    assert world.node.removed == []


def _tried_again(claims: ClaimLifecycle, reference: ClaimReference) -> None:
    """Unprepares as the DRA service does."""
    while True:
        try:
            return claims.unprepare(reference, PATIENT)
        except ClaimError as error:
            if not error.failure.retriable:
                raise


def test_a_plugin_that_has_just_started_unprepares_under_the_gpus_lock(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    held = world.hold_gpu("gpu-0")
    waited: list[dict[str, tuple[str, ...]]] = []

    def waiting(_: float) -> None:
        waited.append(world.recorded())
        held.close()

    world.pause = waiting
    world.claims().unprepare(TRAIN, PATIENT)
    assert waited == [{"train": ("gpu-0",)}]
    assert world.recorded() == {}


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
    held = world.hold_gpu("gpu-0")
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


def test_a_claim_stays_recorded_if_the_caller_goes_while_it_is_unprepared(world: World) -> None:
    """The kubelet may have had it prepared again by version 0.1.0, which takes no GPU's lock."""
    world.claims().prepare(TRAIN, PATIENT)
    gone = threading.Event()
    world.node.removing = lambda _: gone.set()
    with pytest.raises(ClaimError) as caught:
        world.claims().unprepare(TRAIN, Call(time.monotonic() + DEADLINE, gone.is_set))
    assert caught.value.failure == CallerGone(TRAIN)
    assert world.recorded() == {"train": ("gpu-0",)}


def test_one_try_of_a_call_waits_ten_seconds_for_a_lock(world: World) -> None:
    world.now = 1000.0

    def wait(seconds: float) -> None:
        world.now += seconds

    world.pause = wait
    with world.hold_gpu("gpu-0"), pytest.raises(ClaimError) as caught:
        world.claims().prepare(TRAIN, Call(1040.0, lambda: False))
    assert isinstance(caught.value.failure, LockUnavailable)
    assert world.now == pytest.approx(1010.0, abs=0.1)
    assert world.node.made == {}


@pytest.mark.parametrize("operation", ["unprepare", "allocation replaced"])
def test_a_claim_recorded_while_another_is_undone_stays_recorded(
    world: World, operation: str
) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    world.node.removing = lambda _: claims.prepare(OTHER, PATIENT)
    if operation == "unprepare":
        claims.unprepare(TRAIN, PATIENT)
        assert world.recorded() == {"other": ("gpu-1",)}
    else:
        world.api["train"] = body(TRAIN, "gpu-2")
        claims.prepare(TRAIN, PATIENT)
        assert world.recorded() == {"train": ("gpu-2",), "other": ("gpu-1",)}


def test_a_claim_recorded_while_another_fails_stays_recorded(world: World) -> None:
    claims = world.claims()

    def making(claim: NodeClaim) -> None:
        if claim.name == "train":
            claims.prepare(OTHER, PATIENT)
            raise ClaimError(NO_NODE)

    world.node.making = making
    with pytest.raises(ClaimError):
        claims.prepare(TRAIN, PATIENT)
    assert world.recorded() == {"other": ("gpu-1",)}


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
    assert world.reporter.stuck == [("thing a", busy)]


def test_a_leftover_that_is_stuck_again_later_is_told_again(world: World) -> None:
    claims = world.claims()
    claims.prepare(TRAIN, PATIENT)
    orphan = replace(world.node.made[UID], uid="a")
    world.node.stuck["a"] = NodeResourceFailed(None, "busy", retriable=True)
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


def test_the_number_of_prepared_claims_is_told_at_start_and_with_each_change(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.reporter.counts.clear()
    claims = world.claims()
    claims.repair()
    claims.prepare(OTHER, PATIENT)
    claims.unprepare(TRAIN, PATIENT)
    assert world.reporter.counts == [1, 2, 1]


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
    assert world.reporter.unrepaired == [("train", NO_NODE)]
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
    ((named, reason, found),) = world.reporter.rebuilt
    assert (named, found) == (str(kept), 1)
    assert reason.startswith(f"checkpoint {world.checkpoint}: line 1")
    assert kept.read_bytes() == content


@pytest.mark.parametrize("operation", ["load", "store"])
def test_a_checkpoint_that_the_disk_refuses_fails_the_claim_and_is_not_rebuilt(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    world.claims().prepare(OTHER, PATIENT)
    content = world.checkpoint.read_bytes()
    monkeypatch.setattr(os, "fsync" if operation == "load" else "fdatasync", refuse)
    failure = refusal(world, TRAIN)
    assert isinstance(failure, CheckpointUnusable)
    assert str(world.checkpoint) in str(failure)
    assert "Input/output error" in str(failure)
    assert world.checkpoint.read_bytes() == content
    assert list(world.folder.glob("*unreadable*")) == []
    assert set(world.node.made) == {OTHER.uid}


def test_a_lost_checkpoint_is_rebuilt(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.unlink()
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize(
    "found",
    [
        Unreachable(GET, "refused"),
        Forbidden(GET, "no right"),
        {},
        body(TRAIN, "gpu-0", request=5),
        body(OTHER, "gpu-1"),
        {"metadata": {"namespace": "default", "name": "train"}, "spec": {}},
    ],
    ids=["unreachable", "forbidden", "empty", "odd", "another claim", "without UID"],
)
def test_nothing_is_rebuilt_or_removed_while_claims_cannot_be_read(
    world: World, found: dict[str, Any] | ApiError
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b"{")
    world.api["train"] = found
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


def test_a_record_that_is_unreadable_again_later_is_told_again(world: World) -> None:
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
