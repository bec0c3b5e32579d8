"""The present state of claims and GPUs, for those who wait for it."""

from concurrent.futures import ThreadPoolExecutor

from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claim_status.readiness import NotChecked, NotSetUp, SetUp
from kubelet_plugin.claims.failure import DeviceMissing, DeviceUnhealthy
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.prepare.resource import MadeInstance, instance_identity, spec_identity
from tests.samples.claims import UID, allocated, claim
from tests.samples.gpus import LOST

MISSING = DeviceMissing(claim(), "gpu-0", ("gpu-1",))
PARTITION = "gpu-0-mig-1g10gb-19-0"


def test_who_waits_gets_the_next_state() -> None:
    live = LiveClaims()
    before = live.now
    with ThreadPoolExecutor() as threads:
        waiting = threads.submit(live.wait, before.version, 60)
        live.recorded([claim()])
        assert waiting.result(60).claims == {UID: claim()}


def test_a_change_since_the_version_is_not_waited_for() -> None:
    live = LiveClaims()
    before = live.now
    live.gpus_seen(DriverReady(()))
    assert live.wait(before.version, 60).gpus.inventory == DriverReady(())


def test_without_a_change_the_same_state_comes_after_the_time() -> None:
    live = LiveClaims()
    assert live.wait(live.now.version, 0) == live.now


def test_nobody_waits_once_the_plugin_stops() -> None:
    live = LiveClaims()
    live.stop()
    assert live.wait(live.now.version, 60).stopped


def test_a_claim_is_set_up_with_the_instances_that_were_made_for_it() -> None:
    live = LiveClaims()
    partitioned = claim(allocated(PARTITION))
    instance = MadeInstance(3, 0, "MIG-3")
    live.recorded([partitioned])

    live.set_up(partitioned, {instance_identity(PARTITION): instance, spec_identity(UID): None})

    assert live.now.readiness == {UID: SetUp({PARTITION: instance})}


def test_a_claim_that_is_recorded_no_longer_is_forgotten() -> None:
    live = LiveClaims()
    live.recorded([claim()])
    live.repair_failed(claim(), MISSING)
    assert live.now.readiness == {UID: NotSetUp(str(MISSING))}

    live.recorded([])
    live.recorded([claim()])

    assert live.now.readiness == {}


def test_a_claim_is_as_ready_as_before_while_its_gpu_has_a_problem() -> None:
    unhealthy = DeviceUnhealthy(claim(), "gpu-0", "GPU-0", LOST)
    live = LiveClaims()
    live.recorded([claim()])
    live.repair_failed(claim(), unhealthy)
    assert live.now.readiness == {UID: NotChecked()}

    live.set_up(claim(), {})
    live.repair_failed(claim(), unhealthy)
    assert live.now.readiness == {UID: SetUp()}


def test_what_is_the_same_wakes_nobody() -> None:
    live = LiveClaims()
    live.set_up(claim(), {})
    version = live.now.version
    live.set_up(claim(), {})
    assert live.now.version == version
