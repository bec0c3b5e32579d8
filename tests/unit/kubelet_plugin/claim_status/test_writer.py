"""The writer of `status.devices`, against an API server of two methods."""

import threading
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.backoff import Backoff
from carina_dra.kube.body import Body
from carina_dra.kube.client import ApplyPatch
from carina_dra.kube.errors import (
    ApiError,
    ApiOperation,
    Conflict,
    Forbidden,
    NotFound,
    Unreachable,
)
from carina_dra.resource import ConsumerReference
from carina_dra.sharing.message import EndedProcess, Reference, ShareUse, SharingReport, WantedShare
from kubelet_plugin.claim_status.health_notice import (
    HealthNotice,
    MemoryExceeded,
    ProblemBegan,
    ProblemEnded,
    ProcessWasEnded,
)
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claim_status.writer import ClaimStatusWriter
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.inventory.health import GpuProblem
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.sharing.standing import Standings, standings
from tests.eventually import eventually
from tests.samples.claims import allocated, claim
from tests.samples.gpus import LOST, observed

DRIVER = "gpu.carina.dev"
OPERATION = ApiOperation.on("patch", RESOURCE_CLAIMS, "default", "train")
AWAY = Unreachable(OPERATION, "no answer")
REFUSED = Forbidden(OPERATION, "no permission")
GONE = NotFound(OPERATION, "no such claim")


@dataclass
class Api:
    """The claims that there are, and what was applied to them."""

    claims: dict[str, Body] = field(default_factory=dict)
    applied: list[tuple[str, Sequence[Any]]] = field(default_factory=list)
    failing: ApiError | None = None
    refusing: ApiError | None = None
    """Why no status is stored, although claims can be read."""
    reads: int = 0

    def add(self, *claims: NodeClaim, pods: int = 1) -> None:
        for each in claims:
            results = [
                {
                    "request": allocated.request,
                    "driver": DRIVER,
                    "pool": allocated.pool,
                    "device": allocated.device,
                }
                | ({"shareID": allocated.share_id} if allocated.share_id else {})
                for allocated in each.devices
            ]
            users = [{"resource": "pods", "name": f"pod-{n}", "uid": str(n)} for n in range(pods)]
            self.claims[each.name] = {
                "metadata": {"namespace": each.namespace, "name": each.name, "uid": each.uid},
                "spec": {},
                "status": {"allocation": {"devices": {"results": results}}, "reservedFor": users},
            }

    def read(self, claim: ClaimReference) -> Body:
        self.reads += 1
        if self.failing:
            raise self.failing
        if claim.name not in self.claims:
            raise GONE
        return self.claims[claim.name]

    def apply_status(self, claim: ClaimReference, patch: ApplyPatch) -> None:
        if self.failing or self.refusing:
            raise self.failing or self.refusing or GONE
        assert patch.field_manager == DRIVER
        metadata = {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid}
        assert patch.body["metadata"] == metadata
        devices = patch.body["status"].get("devices", [])
        self.applied.append((claim.name, devices))
        kept = [
            entry
            for entry in self.claims[claim.name]["status"].get("devices", ())
            if entry["driver"] != DRIVER
        ]
        self.claims[claim.name]["status"]["devices"] = [*kept, *devices]

    def health(self, name: str = "train") -> list[str]:
        return [
            condition["status"]
            for entry in self.claims[name]["status"]["devices"]
            if entry["driver"] == DRIVER
            for condition in entry["conditions"]
            if condition["type"] == "Healthy"
        ]


@dataclass
class Reports:
    written: int = 0
    failures: list[ApiError] = field(default_factory=list)
    told: list[tuple[str, int, HealthNotice]] = field(default_factory=list)

    def status_written(self) -> None:
        self.written += 1

    def status_not_written(self, claim: ClaimReference, error: ApiError) -> None:
        self.failures.append(error)

    def health_changed(
        self,
        claim: ClaimReference,
        consumers: Sequence[ConsumerReference],
        noticed: Iterable[HealthNotice],
    ) -> None:
        self.told += [(claim.name, len(consumers), notice) for notice in noticed]


class World:
    """A node and its API server, in virtual time."""

    def __init__(self) -> None:
        self.api, self.reports = Api(), Reports()
        self.seconds = 0.0
        self.restart()

    def restart(self) -> None:
        """A new process of the plugin begins, which knows nothing."""
        self.live = LiveClaims()
        self.writer = ClaimStatusWriter(
            self.live,
            self.api,
            driver=DRIVER,
            reporter=self.reports,
            clock=lambda: self.seconds,
            now=lambda: 1_800_000_000 + self.seconds,
            pause=self._pause,
            backoff=Backoff(initial=1.0, cap=60.0, jitter=0.0),
        )

    def have(self, *claims: NodeClaim, problems: tuple[GpuProblem, ...] = ()) -> None:
        """The claims are prepared, and GPU 0 has the problems."""
        self.live.gpus_seen(DriverReady((observed(0, *problems), observed(1))))
        self.live.recorded(claims)
        for each in claims:
            self.live.set_up(each, {})

    def run(self, seconds: float) -> None:
        """Lets the writer work for that time."""
        end = self.seconds + seconds
        while self.seconds < end:
            delay = self.writer.write_due(self.live.now)
            self.seconds += min(max(delay, 0.01), max(end - self.seconds, 0.01))

    def _pause(self, seconds: float) -> None:
        self.seconds += seconds


@pytest.fixture
def world() -> World:
    return World()


def test_a_prepared_claim_gets_its_status_once_whatever_its_pods(world: World) -> None:
    world.api.add(claim(), pods=5)
    world.have(claim())
    world.run(3600)

    ((name, (entry,)),) = world.api.applied
    assert name == "train"
    assert (entry["driver"], entry["pool"], entry["device"]) == (DRIVER, "node-1", "gpu-0")
    assert entry["data"]["uuid"].startswith("GPU-")
    assert world.api.health() == ["True"]
    assert world.reports.told == []
    assert (world.api.reads, world.reports.written) == (1, 1)


def test_nothing_is_written_before_the_claim_is_set_up_and_the_gpus_are_known(
    world: World,
) -> None:
    world.api.add(claim())
    world.live.recorded([claim()])
    world.run(60)
    world.live.set_up(claim(), {})
    world.run(60)
    assert world.api.applied == []

    world.live.gpus_seen(DriverReady((observed(0),)))
    world.run(60)
    assert len(world.api.applied) == 1


def test_entries_of_other_drivers_stay(world: World) -> None:
    world.api.add(claim())
    other = {"driver": "nic.example.com", "pool": "node-1", "device": "nic-0"}
    world.api.claims["train"]["status"]["devices"] = [other]
    world.have(claim())
    world.run(60)
    assert other in world.api.claims["train"]["status"]["devices"]


def test_health_that_changes_is_written_and_told_to_claim_and_pods(world: World) -> None:
    world.api.add(claim(), pods=2)
    world.have(claim())
    world.run(60)

    world.have(claim(), problems=(LOST,))
    world.run(60)
    assert world.api.health() == ["False"]
    world.have(claim())
    world.run(60)
    assert world.api.health() == ["True"]

    (name, pods, began), (_, _, ended) = world.reports.told
    assert (name, pods) == ("train", 2)
    assert isinstance(began, ProblemBegan)
    assert began.reason == "GPULost"
    assert ended == ProblemEnded(("gpu-0",))


def test_a_status_that_is_right_is_not_written_after_a_restart(world: World) -> None:
    world.api.add(claim())
    world.have(claim(), problems=(LOST,))
    world.run(60)
    world.restart()

    world.have(claim(), problems=(LOST,))
    world.run(60)

    assert len(world.api.applied) == 1
    assert len(world.reports.told) == 1


def test_what_changed_while_the_plugin_was_away_is_written_and_told(world: World) -> None:
    world.api.add(claim())
    world.have(claim(), problems=(LOST,))
    world.run(60)
    world.restart()

    world.have(claim())
    world.run(60)

    assert world.api.health() == ["True"]
    assert [type(notice) for _, _, notice in world.reports.told] == [ProblemBegan, ProblemEnded]


def test_the_status_is_taken_back_when_the_claim_is_unprepared(world: World) -> None:
    world.api.add(claim())
    world.have(claim())
    world.run(60)

    world.have()
    world.run(3600)

    assert [devices for _, devices in world.api.applied][1:] == [[]]
    assert world.api.claims["train"]["status"]["devices"] == []


@pytest.mark.parametrize("other_uid", [True, False])
def test_a_claim_that_is_gone_or_was_made_anew_is_left_alone(world: World, other_uid: bool) -> None:
    if other_uid:
        world.api.add(claim(uid="another"))
    world.have(claim())
    world.run(3600)
    assert world.api.reads == 1
    world.have()
    world.run(3600)
    assert world.api.applied == []
    assert world.reports.failures == []


def test_devices_that_the_claim_has_no_longer_are_not_said(world: World) -> None:
    world.api.add(claim(allocated("gpu-1")))
    world.have(claim(allocated("gpu-0"), allocated("gpu-1")))
    world.run(60)
    ((_, devices),) = world.api.applied
    assert [entry["device"] for entry in devices] == ["gpu-1"]


def test_a_claim_that_is_deleted_before_its_status_is_written_is_no_failure(world: World) -> None:
    world.api.add(claim())
    world.api.refusing = GONE
    world.have(claim())
    world.run(3600)
    assert world.reports.failures == []
    assert world.api.reads == 1


@pytest.mark.parametrize("error", [AWAY, Conflict(OPERATION, "it has changed")], ids=repr)
def test_a_write_that_may_succeed_is_tried_again_soon(world: World, error: ApiError) -> None:
    world.api.add(claim())
    world.api.refusing = error
    world.have(claim())
    world.run(10)
    world.api.refusing = None
    world.run(30)
    assert world.api.health() == ["True"]


def test_a_device_of_another_driver_with_the_same_name_is_not_spoken_of(world: World) -> None:
    world.api.add(claim())
    (result,) = world.api.claims["train"]["status"]["allocation"]["devices"]["results"]
    result["driver"] = "other.example.com"
    world.have(claim())
    world.run(60)
    assert world.api.applied == []


def test_a_claim_that_cannot_be_read_keeps_no_other_waiting(world: World) -> None:
    odd, other = claim(), claim(uid="uid-2", name="other")
    world.api.add(odd, other)
    world.api.claims["train"]["status"] = {"allocation": "odd"}
    world.have(odd, other)
    world.run(60)
    assert [name for name, _ in world.api.applied] == ["other"]


def test_nothing_is_said_of_a_claim_that_has_lost_its_allocation(world: World) -> None:
    world.api.add(claim())
    del world.api.claims["train"]["status"]["allocation"]
    world.have(claim())
    world.run(60)
    assert world.api.applied == []


def test_everything_is_written_once_the_api_server_is_back(world: World) -> None:
    claims = [claim(uid=f"uid-{n}", name=f"claim-{n}") for n in range(3)]
    world.api.add(*claims)
    world.api.failing = AWAY
    world.have(*claims)
    world.run(3600)
    assert world.api.applied == []
    assert 60 <= len(world.reports.failures) <= 70  # of all claims together

    world.have(*claims, problems=(LOST,))
    world.api.failing = None
    world.run(300)

    assert sorted(name for name, _ in world.api.applied) == ["claim-0", "claim-1", "claim-2"]
    assert len(world.reports.told) == 3


def test_the_pod_of_a_claim_is_known_if_the_claim_was_made_for_it(world: World) -> None:
    templated, shared, named = claim(), claim(uid="u-2", name="b"), claim(uid="u-3", name="c")
    world.api.add(templated, named)
    world.api.add(shared, pods=2)
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "pod-0", "uid": "0", "controller": True}
    for name in ("train", "b"):
        world.api.claims[name]["metadata"]["ownerReferences"] = [owner]
    world.have(templated, shared, named)
    world.run(60)
    assert world.live.now.pods == {templated.uid: "pod-0"}
    world.live.recorded([shared])
    assert world.live.now.pods == {}


def test_claims_that_fail_keep_no_other_waiting(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Such as those that a webhook of their namespace refuses to answer for."""
    stuck = [claim(uid=f"uid-{n}", name=f"stuck-{n}") for n in range(3)]
    other = claim(allocated("gpu-1"), uid="uid-9", name="other")
    apply_status = world.api.apply_status

    def fail_stuck(reference: ClaimReference, patch: ApplyPatch) -> None:
        if reference.name.startswith("stuck"):
            raise AWAY
        apply_status(reference, patch)

    monkeypatch.setattr(world.api, "apply_status", fail_stuck)
    world.api.add(*stuck, other)
    world.have(*stuck)
    world.run(600)

    world.have(*stuck, other)
    began = world.seconds
    world.run(2)

    assert [name for name, _ in world.api.applied] == ["other"]
    assert world.seconds - began < 5
    monkeypatch.setattr(world.api, "apply_status", apply_status)
    world.run(120)
    assert len(world.api.applied) == 4


def test_a_claim_that_failed_once_waits_for_none_that_fails_always(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    stuck, once = claim(), claim(allocated("gpu-1"), uid="uid-2", name="once")
    apply_status = world.api.apply_status
    failing = {"train", "once"}

    def fail(reference: ClaimReference, patch: ApplyPatch) -> None:
        if reference.name in failing:
            raise AWAY
        apply_status(reference, patch)

    monkeypatch.setattr(world.api, "apply_status", fail)
    world.api.add(stuck, once)
    world.have(stuck, once)
    world.run(5)
    failing.remove("once")
    world.run(60)
    assert [name for name, _ in world.api.applied] == ["once"]


def test_after_an_outage_the_next_failure_is_tried_again_soon(world: World) -> None:
    world.api.add(claim())
    world.api.failing = AWAY
    world.have(claim())
    world.run(600)
    world.api.failing = None
    world.run(60)
    before = len(world.reports.failures)

    world.api.failing = AWAY
    world.have(claim(), problems=(LOST,))
    world.run(60)
    assert len(world.reports.failures) - before >= 3


def test_without_the_permission_users_are_told_once_all_the_same(world: World) -> None:
    world.api.add(claim())
    world.api.refusing = REFUSED
    world.have(claim())
    world.run(60)
    world.have(claim(), problems=(LOST,))
    world.run(3600)

    assert len(world.reports.told) == 1
    assert 2 <= len(world.reports.failures) <= 3600 / 300 + 2
    world.api.refusing = None
    world.run(600)
    assert world.api.health() == ["False"]


def test_a_flaky_gpu_costs_a_claim_few_writes(world: World) -> None:
    world.api.add(claim())
    for n in range(3600):
        world.have(claim(), problems=(LOST,) if n % 2 else ())
        world.run(1)
    assert len(world.api.applied) <= 3600 / 15 + 4


def test_a_claim_that_comes_later_is_written_too(world: World) -> None:
    first, second = claim(), claim(uid="uid-2", name="second")
    world.api.add(first, second)
    world.have(first)
    world.run(60)
    world.have(first, second)
    world.run(60)
    assert [name for name, _ in world.api.applied] == ["train", "second"]


def test_what_changes_during_a_write_counts_for_the_next_claim(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    claims = claim(), claim(uid="uid-2", name="second")
    world.api.add(*claims)
    apply_status = world.api.apply_status

    def and_lose_the_gpu(claim: ClaimReference, patch: ApplyPatch) -> None:
        apply_status(claim, patch)
        if len(world.api.applied) == 1:
            world.have(*claims, problems=(LOST,))

    monkeypatch.setattr(world.api, "apply_status", and_lose_the_gpu)
    world.have(*claims)
    world.run(60)
    assert len(world.api.applied) == 3
    assert world.api.health("train") == world.api.health("second") == ["False"]


def test_a_claim_on_a_flaky_gpu_keeps_no_other_waiting(world: World) -> None:
    flaky, other = claim(), claim(allocated("gpu-1"), uid="uid-2", name="other")
    world.api.add(flaky, other)
    for n in range(6):
        world.have(flaky, problems=(LOST,) if n % 2 else ())
        world.run(1)

    world.have(flaky, other)
    world.run(2)
    assert world.api.applied[-1][0] == "other"
    world.run(60)
    assert world.api.health("train") == ["True"]


def test_many_claims_are_written_at_a_bounded_rate(world: World) -> None:
    claims = [claim(uid=f"uid-{n}", name=f"claim-{n}") for n in range(100)]
    world.api.add(*claims)
    world.have(*claims)
    began = world.seconds

    world.writer.write_due(world.live.now)

    assert len(world.api.applied) == 100
    assert world.seconds - began > 100 / 5 - 1


def test_a_thread_writes_what_changes_until_the_claims_are_stopped(world: World) -> None:
    world.api.add(claim())
    world.writer.start()
    world.have(claim())
    eventually(lambda: world.reports.written == 1)
    world.have(claim(), problems=(LOST,))
    eventually(lambda: world.api.health() == ["False"])

    world.live.stop()
    eventually(lambda: all(thread.name != "claim-status" for thread in threading.enumerate()))


def test_a_bug_does_not_end_the_thread(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    bugs = [RuntimeError("a bug")]
    read = world.api.read

    def read_with_a_bug(claim: ClaimReference) -> Body:
        if bugs:
            raise bugs.pop()
        return read(claim)

    monkeypatch.setattr(world.api, "read", read_with_a_bug)
    world.api.add(claim())
    world.have(claim())
    world.writer.start()
    eventually(lambda: world.reports.written == 1)
    assert world.seconds >= 1  # it has paused
    world.live.stop()


@pytest.mark.parametrize(("kills", "notice"), [(False, MemoryExceeded), (True, ProcessWasEnded)])
def test_a_share_that_flaps_costs_few_writes_and_one_event_in_five_minutes(
    world: World, kills: bool, notice: type[HealthNotice]
) -> None:
    shared = claim(allocated("gpu-0-share", share_id="a"))
    uuid = observed(0).gpu.uuid
    wanted = WantedShare(
        claim=Reference(namespace="default", name="train", uid=shared.uid),
        gpu=uuid,
        memory_mib=1024,
        cores=10,
    )
    world.api.add(shared)
    world.have(shared)
    found: Standings = {}
    pod = Reference(namespace="default", name="train", uid="pod")
    for second in range(600):
        last = EndedProcess(
            pod=pod, container_id=None, memory_mib=second, time=float(second), why="memory"
        )
        use = ShareUse(
            gpu=uuid,
            claims=(shared.uid,),
            given_mib=1024,
            given_cores=10,
            used_mib=2000 + second,
            pods=(),
            idle_since=None,
            exceeded_since=float(second) if second % 2 else None,
            ended=second,
            last_ended=last if kills else None,
        )
        found = standings(found, (wanted,), SharingReport(generation=1, time=second, uses=(use,)))
        if found != world.live.now.standings:
            world.live.shares_seen(found)
        world.run(1)

    assert len(world.api.applied) <= 3
    (told,) = world.reports.told
    assert isinstance(told[2], notice)
