"""What the status of a claim says of its devices."""

from dataclasses import replace
from datetime import UTC, datetime

import pytest

from carina_dra.config.device import Enforcement, ShareConfig
from carina_dra.resource import AllocatedDeviceStatus, Condition, ConditionStatus
from carina_dra.sharing.message import EndedProcess, Reference
from kubelet_plugin.claim_status.device_health import GpusNow
from kubelet_plugin.claim_status.device_status import (
    HEALTHY,
    MEMORY_WITHIN_SHARE,
    READY,
    DeviceStatus,
    Stated,
    completed,
    device_statuses,
    read_statuses,
    rendered,
)
from kubelet_plugin.claim_status.readiness import NotChecked, NotSetUp, SetUp
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.inventory.gpu import ObservedGpu
from kubelet_plugin.inventory.inventory import DriverMissing, DriverReady
from kubelet_plugin.prepare.resource import MadeInstance
from kubelet_plugin.sharing.standing import (
    EndedViolator,
    NotWatched,
    ShareExceeded,
    ShareStanding,
    Standings,
    WithinShare,
)
from tests.samples.claims import allocated, claim
from tests.samples.gpus import LOST, MIG, gpu, observed

DRIVER = "gpu.carina.dev"
PARTITION = "gpu-0-mig-7g80gb-0-0"
NOW = "2026-11-26T12:00:00Z"


def now(*gpus: ObservedGpu) -> GpusNow:
    return GpusNow(DriverReady(gpus or (observed(0),)))


def only(*statuses: DeviceStatus) -> DeviceStatus:
    (status,) = statuses
    return status


def test_a_whole_gpu_is_named_as_exporters_name_it() -> None:
    status = only(*device_statuses(claim(), SetUp(), now()))
    facts = gpu(0)

    assert status.key == ("node-1", "gpu-0", None)
    assert status.data == {
        "type": "gpu",
        "uuid": facts.uuid,
        "productName": "NVIDIA L40S",
        "driverVersion": "550.163.01",
        "pciBusID": "0000:00:00.0",
    }


def test_what_the_driver_does_not_say_is_left_out() -> None:
    status = only(*device_statuses(claim(), SetUp(), now(observed(0, product_name=None))))
    assert status.data is not None
    assert "productName" not in status.data


def test_a_partition_has_the_uuid_of_its_instance_and_that_of_its_gpu() -> None:
    instances = {PARTITION: MadeInstance(3, 0, "MIG-3")}
    status = only(
        *device_statuses(claim(allocated(PARTITION)), SetUp(instances), now(observed(0, mig=MIG)))
    )

    assert status.data is not None
    assert status.data["type"] == "mig"
    assert status.data["uuid"] == "MIG-3"
    assert status.data["parentUUID"] == gpu(0).uuid
    assert (status.data["gpuInstanceID"], status.data["computeInstanceID"]) == (3, 0)
    assert status.data["profile"] == "7g.80gb"


def test_a_share_says_what_enforces_its_limits() -> None:
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    status = only(*device_statuses(shared, SetUp(), now()))

    assert status.key == ("node-1", "gpu-0-share", "share-1")
    assert status.data is not None
    assert status.data["uuid"] == gpu(0).uuid
    assert status.data["memoryEnforcement"] == "none"
    assert status.data["coreEnforcement"] == "time-slice"


@pytest.mark.parametrize(
    ("gpus", "level"), [({"gpu-0"}, "kernel"), ({"gpu-1"}, "none"), (set[str](), "none")]
)
def test_a_share_is_enforced_by_the_kernel_if_its_own_pod_is_limited(
    gpus: set[str], level: str
) -> None:
    limits = now(observed(0, memory_limits=True))
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    status = only(*device_statuses(shared, SetUp(limited=frozenset(gpus)), limits))
    assert status.data is not None
    assert status.data["memoryEnforcement"] == level


_BY_MPS = ShareConfig(enforcement=Enforcement(memory=("mps",)))


@pytest.mark.parametrize(
    ("config", "has_daemon", "levels"),
    [
        (_BY_MPS, True, ("mps", "mps")),
        (_BY_MPS, False, ("none", "time-slice")),
        (ShareConfig(), True, ("none", "time-slice")),
    ],
)
def test_a_share_is_enforced_per_process_if_it_demands_that_and_its_claim_has_a_daemon(
    config: ShareConfig, has_daemon: bool, levels: tuple[str, str]
) -> None:
    shared = claim(replace(allocated("gpu-0-share", share_id="share-1"), config=config))
    status = only(*device_statuses(shared, SetUp(mps=has_daemon), now()))
    assert status.data is not None
    assert (status.data["memoryEnforcement"], status.data["coreEnforcement"]) == levels


def test_a_share_whose_daemon_fails_says_what_it_said_before() -> None:
    shared = claim(replace(allocated("gpu-0-share", share_id="share-1"), config=_BY_MPS))
    status = only(*device_statuses(shared, NotSetUp("its MPS daemon fails"), now()))
    assert status.data is None
    assert status.condition(READY) is not None


def test_what_enforces_a_share_that_lacks_something_is_as_was_said_before() -> None:
    limits = now(observed(0, memory_limits=True))
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    assert only(*device_statuses(shared, NotSetUp("no limit"), limits)).data is None


def test_conditions_say_whether_it_is_ready_and_healthy() -> None:
    status = only(*device_statuses(claim(), SetUp(), now()))
    assert {c.type: (c.status, c.reason) for c in status.conditions} == {
        "Ready": (ConditionStatus.TRUE, "Prepared"),
        "Healthy": (ConditionStatus.TRUE, "Healthy"),
    }

    status = only(*device_statuses(claim(), NotSetUp("no node"), now(observed(0, LOST))))
    assert {c.type: (c.status, c.reason) for c in status.conditions} == {
        READY: (ConditionStatus.FALSE, "RepairFailed"),
        HEALTHY: (ConditionStatus.FALSE, "GPULost"),
    }


def test_it_is_not_known_whether_a_claim_is_ready_that_could_not_be_checked() -> None:
    status = only(*device_statuses(claim(), NotChecked(), now(observed(0, LOST))))
    ready = status.condition(READY)
    assert ready is not None
    assert (ready.status, ready.reason) == (ConditionStatus.UNKNOWN, "NotChecked")


def test_a_device_of_two_requests_is_said_once() -> None:
    twice = claim(allocated("gpu-0", "a"), allocated("gpu-0", "b"))
    assert len(device_statuses(twice, SetUp(), now())) == 1


def test_what_is_not_known_now_stays_as_it_was() -> None:
    known = device_statuses(claim(), SetUp(), now())
    unknown = device_statuses(claim(), SetUp(), GpusNow(DriverMissing("unloaded")))
    assert only(*unknown).data is None

    assert only(*completed(unknown, known)).data == only(*known).data


def test_an_entry_has_only_what_is_known() -> None:
    unknown = device_statuses(claim(), SetUp(), GpusNow(DriverMissing("unloaded")))
    (entry,) = rendered(unknown, DRIVER, (), NOW)
    assert set(entry) == {"driver", "pool", "device", "conditions"}


def test_a_condition_keeps_the_time_at_which_its_status_changed() -> None:
    before = datetime(2026, 11, 20, tzinfo=UTC)
    present = AllocatedDeviceStatus(
        DRIVER,
        "node-1",
        "gpu-0",
        conditions=(
            Condition(READY, ConditionStatus.TRUE, before, "Prepared", ""),
            Condition(HEALTHY, ConditionStatus.TRUE, before, "Healthy", ""),
        ),
    )
    wanted = device_statuses(claim(), SetUp(), now(observed(0, LOST)))

    theirs = replace(
        present,
        driver="other.example.com",
        conditions=(Condition(HEALTHY, ConditionStatus.FALSE, before, "", ""),),
    )
    (entry,) = rendered(wanted, DRIVER, (present, theirs), NOW)

    times = {c["type"]: c["lastTransitionTime"] for c in entry["conditions"]}
    assert times == {READY: "2026-11-20T00:00:00Z", HEALTHY: NOW}


def test_what_was_written_reads_as_what_was_said() -> None:
    wanted = device_statuses(
        claim(allocated("gpu-0-share", share_id="share-1")), SetUp(), now(observed(0, LOST))
    )
    (entry,) = rendered(wanted, DRIVER, (), NOW)
    stored = AllocatedDeviceStatus(
        entry["driver"],
        entry["pool"],
        entry["device"],
        entry["shareID"],
        tuple(
            Condition(
                c["type"],
                ConditionStatus(c["status"]),
                datetime.fromisoformat(c["lastTransitionTime"]),
                c["reason"],
                c["message"],
            )
            for c in entry["conditions"]
        ),
        entry["data"],
    )
    others = AllocatedDeviceStatus("other.example.com", "node-1", "nic-0")
    assert read_statuses((others, stored), DRIVER) == wanted


def test_the_health_of_a_device_without_a_driver_is_unknown() -> None:
    status = only(*device_statuses(claim(), SetUp(), GpusNow(DriverMissing("unloaded"))))
    healthy = status.condition(HEALTHY)
    assert healthy is not None
    assert (healthy.status, healthy.message) == (ConditionStatus.UNKNOWN, "unloaded")


def test_a_condition_says_why_in_1024_bytes_at_most() -> None:
    for message, said in (("no node", "no node"), ("x" + "\u00fc" * 2000, "x" + "\u00fc" * 511)):
        status = only(*device_statuses(claim(), NotSetUp(message), now()))
        ready = status.condition(READY)
        assert ready is not None
        assert ready.message == said

    status = only(*device_statuses(claim(), SetUp(), GpusNow(DriverMissing("x" * 2000))))
    healthy = status.condition(HEALTHY)
    assert healthy is not None
    assert len(healthy.message) == 1024


def test_a_partition_whose_instance_is_not_known_has_no_data() -> None:
    partition = claim(allocated(PARTITION))
    for readiness in (SetUp(), NotChecked()):
        gpus = now(observed(0, mig=MIG))
        assert only(*device_statuses(partition, readiness, gpus)).data is None


def test_a_share_that_is_watched_says_whether_its_memory_is_exceeded() -> None:
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    uuid = gpu(0).uuid

    def condition(standing: ShareStanding) -> Stated:
        status = only(*device_statuses(shared, SetUp(), now(), {(shared.uid, uuid): standing}))
        stated = status.condition(MEMORY_WITHIN_SHARE)
        assert stated is not None
        return stated

    assert condition(WithinShare()).status is ConditionStatus.TRUE
    exceeded = condition(ShareExceeded(1_800_000_000.0, 12000, 10240, 0.0))
    assert (exceeded.status, exceeded.reason) == (ConditionStatus.FALSE, "GPUMemoryExceeded")
    assert exceeded.message == (
        f"the pods of the claim use more memory of GPU 0 ({uuid}) than given: 12000 MiB of 10240 "
        "MiB at 2027-01-15T08:00:00Z (memory of this device: not enforced). Others on the GPU may "
        "find none left; let the pods use less, or request more memory"
    )
    assert condition(NotWatched("no permission")).status is ConditionStatus.UNKNOWN


@pytest.mark.parametrize(
    ("why", "text"),
    [
        (
            "memory",
            (
                "the pods of the claim used more memory of it than the 10240 MiB given; let the "
                "pods use less, or request more memory"
            ),
        ),
        (
            "mps",
            (
                "it computed outside of the MPS daemon of the claim, which limits its memory; "
                "leave CUDA_MPS_PIPE_DIRECTORY as it is in the container"
            ),
        ),
        ("a later\nword", "a later?word"),
    ],
)
def test_a_share_whose_process_was_ended_says_which_and_why(why: str, text: str) -> None:
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    pod = Reference(namespace="team", name="train", uid="pod")
    ended = EndedProcess(
        pod=pod, container_id="4f" * 32, memory_mib=12000, time=1_800_000_000.0, why=why
    )
    standing = {(shared.uid, gpu(0).uuid): EndedViolator(ended, 10240, 0.0)}
    status = only(*device_statuses(shared, SetUp(), now(), standing))
    stated = status.condition(MEMORY_WITHIN_SHARE)
    assert stated is not None
    assert (stated.status, stated.reason) == (ConditionStatus.FALSE, "GPUProcessEnded")
    assert stated.message == (
        "a process of pod team/train, container 4f4f4f4f4f4f, with 12000 MiB of GPU 0 "
        f"({gpu(0).uuid}) was ended at 2027-01-15T08:00:00Z: {text}"
    )


def test_only_shares_that_are_watched_have_a_condition_of_memory() -> None:
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    whole = claim()
    other = {("other", gpu(0).uuid): WithinShare(), (whole.uid, gpu(0).uuid): WithinShare()}

    def has_condition(which: NodeClaim, standings: Standings) -> bool:
        status = only(*device_statuses(which, SetUp(), now(), standings))
        return status.condition(MEMORY_WITHIN_SHARE) is not None

    assert not has_condition(whole, other)
    assert not has_condition(shared, {})


def test_before_it_is_known_whether_shares_are_watched_the_condition_stays() -> None:
    shared = claim(allocated("gpu-0-share", share_id="share-1"))
    standing = ShareExceeded(1.0, 2000, 1000, 1.0)
    before = device_statuses(shared, SetUp(), now(), {(shared.uid, gpu(0).uuid): standing})

    restarted = device_statuses(shared, SetUp(), now(), None)
    assert completed(restarted, before) == before
    assert only(*completed(restarted, ())).condition(MEMORY_WITHIN_SHARE) is None
    gone = device_statuses(shared, SetUp(), now(), {})
    assert only(*completed(gone, before)).condition(MEMORY_WITHIN_SHARE) is None
