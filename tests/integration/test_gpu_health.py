"""The health of GPUs, from the driver to the slices, with whole plugin processes on simulated GPUs.

The embedded API stands for Kubernetes here. What Kubernetes itself does with the taints is tested
in tests/integration/publish/test_taints.py and tests/e2e.
"""

import json
import signal
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.client import MergePatch
from tests.eventually import eventually
from tests.integration.plugin_host import DRIVER, NODE, Host, running_host

FLAGS = ("--poll-seconds", "0.5", "--recovery-seconds", "0", "--hang-seconds", "1")
BAD = 3
KINDS = {"gpu", "share", "mig"}


class Health:
    """What the slices and Events say of the GPUs of a node."""

    def __init__(self, host: Host) -> None:
        self.host, self.gpus = host, host.gpus

    def taints(self, minor: int = BAD) -> dict[tuple[str, str, str], set[str]]:
        """State, reason and effect of the taints of a GPU's devices, with the kinds of these."""
        found: dict[tuple[str, str, str], set[str]] = {}
        for device in self.devices():
            if device["name"].split("-")[1] != str(minor):
                continue
            for taint in device.get("taints", ()):
                key = taint["key"].removeprefix(f"{DRIVER}/"), taint["value"], taint["effect"]
                found.setdefault(key, set()).add(device["attributes"]["type"]["string"])
        return found

    def devices(self) -> list[dict[str, Any]]:
        return [
            device for body in self.host.slices() for device in body["spec"].get("devices") or ()
        ]

    def wait(self, *taints: tuple[str, str, str], minor: int = BAD) -> None:
        """Waits until the devices of a GPU have these taints, all of its kinds but monitors."""
        expected = dict.fromkeys(taints, KINDS)
        eventually(lambda: self.taints(minor) == expected)

    def assert_others_are_well(self, bad: int = BAD) -> None:
        assert all(not self.taints(minor) for minor in range(8) if minor != bad)

    def reasons(self) -> list[str]:
        return [event["reason"] for event in self.host.events()]

    def clear(self, minor: int) -> None:
        """Clears the faults of a GPU as of now, as an administrator does."""
        uuid, now = self.gpus.state.gpus[minor].uuid, datetime.now(UTC).isoformat()
        cleared = {f"{DRIVER}/faults-cleared": json.dumps({uuid: now})}
        self.host.client.patch(NODES, NODE, MergePatch({"metadata": {"annotations": cleared}}))

    def start(self) -> Any:
        return self.host.start(*FLAGS)

    def kill(self) -> None:
        """Kills the plugin at once."""
        process = self.host.processes[-1]
        process.kill()
        process.wait()


@pytest.fixture
def health() -> Iterator[Health]:
    with running_host() as host:
        made = Health(host)
        made.start()
        eventually(host.has_whole_pool)
        yield made
        host.gpus.heal()


RESET = ("needs-reset", "xid-95", "NoExecute")


def test_an_xid_is_remembered_until_the_node_has_rebooted(health: Health) -> None:
    health.gpus.xid(BAD, 95)
    health.wait(RESET)
    health.assert_others_are_well()
    health.kill()
    health.start()
    health.wait(RESET)

    health.kill()
    health.gpus.reboot()
    health.start()
    health.wait()
    eventually(lambda: "GPURecovered" in health.reasons())
    assert health.reasons().count("GPUNeedsReset") == 1


def test_an_xid_is_over_when_the_driver_was_bound_again_or_an_administrator_says_so(
    health: Health,
) -> None:
    health.gpus.xid(BAD, 95)
    health.wait(RESET)
    health.gpus.rebind(BAD)
    health.wait()

    health.gpus.xid(BAD, 109)
    health.wait(("needs-reset", "xid-109", "NoExecute"))
    health.clear(BAD)
    health.wait()


def test_the_error_of_an_application_is_an_event_and_no_taint(health: Health) -> None:
    for number in (13, 31, 43, 45, 94):
        health.gpus.xid(BAD, number)
    eventually(lambda: health.reasons().count("GPUApplicationFailed") == 3)
    health.gpus.xid(4, 95)
    health.wait(RESET, minor=4)
    health.assert_others_are_well(4)


def test_what_the_driver_asks_for_is_followed(health: Health) -> None:
    health.kill()
    health.gpus.replace_driver("590.48.01")
    health.start()
    health.gpus.recovery_action(BAD, 4)
    health.wait(("drain", "recovery-action-4", "NoSchedule"))
    health.gpus.recovery_action(BAD, 1)
    health.wait(("needs-reset", "recovery-action-1", "NoExecute"))
    health.assert_others_are_well()
    health.gpus.recovery_action(BAD, 0)
    health.wait()
    health.gpus.recovery_action(BAD, 2)
    for minor in range(8):
        health.wait(("needs-reboot", "recovery-action-2", "NoSchedule"), minor=minor)


def test_an_event_that_is_lost_is_found_by_reading(health: Health) -> None:
    health.kill()
    health.gpus.replace_driver("590.48.01")
    health.gpus.set_health(BAD, recovery_action=1)
    health.start()
    health.wait(("needs-reset", "recovery-action-1", "NoExecute"))


def test_a_lost_gpu_stays_in_the_slices_when_the_plugin_restarts(health: Health) -> None:
    health.gpus.lose_gpu(BAD)
    eventually(lambda: ("lost", "NVML_ERROR_GPU_IS_LOST", "NoExecute") in health.taints())
    names = {device["name"] for device in health.devices()}
    health.kill()
    health.start()
    eventually(lambda: health.reasons().count("GPULost") == 1)
    eventually(health.host.has_whole_pool)
    assert {device["name"] for device in health.devices()} == names
    assert ("lost", "NVML_ERROR_GPU_IS_LOST", "NoExecute") in health.taints()


def test_all_gpus_are_unreadable_while_the_first_call_of_the_driver_hangs(health: Health) -> None:
    health.kill()
    health.gpus.hang("nvmlInitWithFlags")
    health.start()
    for minor in range(8):
        health.wait(("unreadable", "hang", "NoSchedule"), minor=minor)
    health.gpus.heal()
    health.wait()


def test_sigterm_ends_the_plugin_while_the_wait_for_events_hangs(health: Health) -> None:
    health.gpus.hang("nvmlEventSetWait_v2")
    health.gpus.set_health(BAD, rows_failed=True)
    health.wait(("memory-failed", "row-remap-failure", "NoSchedule"))
    process = health.host.processes[-1]
    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0


def test_a_damaged_record_of_faults_is_set_aside(health: Health) -> None:
    health.gpus.xid(BAD, 95)
    health.wait(RESET)
    health.kill()
    (health.host.plugin / "health.json").write_text("{")
    health.start()
    health.wait()
    assert (health.host.plugin / "health.json.damaged").read_text() == "{"
    assert "set aside" in health.host.log.read_text()
