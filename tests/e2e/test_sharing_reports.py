"""What users see of a share that is exceeded: plugin, carina-sharing and kubelet are the real ones.

Only the GPUs are simulated: they say which memory the process of a container has.
"""

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from simulation.kubernetes import process, reaper
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, Plugin
from tests.e2e.test_sharing import pid_of
from tests.e2e.workloads import Object, Workloads, container, request

MIB = 2**20
_GIVEN_MIB = 20 * 1024
_SECONDS = 4_100_001
"""Of the container's sleep, which tells its process from all others on this machine."""


@pytest.fixture
def watchdog() -> str:
    """What it does with violators."""
    return "warn"


@pytest.fixture
def sharing(node: Node, gpus: SimulatedNode, plugin: Plugin, watchdog: str) -> Iterator[None]:
    """carina-sharing beside the plugin, on the host."""
    kubepods = f"/{reaper.cgroup_name(node.cluster.state.path)}/{node.name}/kubepods"
    command = gpus.sharing_command(
        {
            "kubelet-root": node.kubelet.root,
            "http-address": "off",
            "kubepods": kubepods,
            "watchdog": watchdog,
        }
    )
    watching = process.start(node.cluster.state, "sharing", command, {})
    wait_for(
        "the plugin to be connected", lambda: "carina_sharing_connected 1.0" in plugin.metrics()
    )
    yield
    watching.stop()


def test_who_uses_more_memory_than_given_is_told_so_everywhere(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin, sharing: None
) -> None:
    for claim in ("own", "other"):
        workloads.claim(claim, _share())
    command = f"trap 'exit 0' TERM; sleep {_SECONDS} & wait"
    workloads.pod("greedy", "own", container("main", "gpu", command=command))
    workloads.pod("modest", "other")
    workloads.wait_running("greedy", "modest")
    minor = _minor(workloads, "own")
    pid = wait_for("its process", lambda: pid_of(_SECONDS))
    wait_for("both to be within", lambda: _memory(workloads, "own") == ("True", "WithinShare"))

    gpus.run_process(minor, pid, memory=2 * _GIVEN_MIB * MIB)

    wait_for(
        "the condition of the claim",
        lambda: _memory(workloads, "own") == ("False", "GPUMemoryExceeded"),
    )
    wait_for("Events on pod and claim", lambda: set(_events(workloads)) == {"greedy", "own"})
    (note,) = set(_events(workloads).values())
    assert f"{2 * _GIVEN_MIB} MiB of {_GIVEN_MIB} MiB" in note
    assert "not enforced" in note
    assert _memory(workloads, "other") == ("True", "WithinShare")

    (row,) = [device for device in _top(plugin) if _names(device["claims"]) == ["own"]]
    assert _names(row["pods"]) == ["greedy"]
    assert (row["memoryUsed"], row["memoryGiven"]) == (2 * _GIVEN_MIB * MIB, _GIVEN_MIB * MIB)
    assert (row["exceeded"], row["exceededTimes"]) == (True, 1)


@pytest.mark.parametrize("watchdog", ["kill"])
def test_whose_process_is_ended_is_told_so_everywhere(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin, sharing: None
) -> None:
    workloads.claim("own", _share())
    command = f"trap 'exit 0' TERM; sleep {_SECONDS + 20} & wait; sleep {_SECONDS + 21} & wait"
    workloads.pod("greedy", "own", container("main", "gpu", command=command))
    workloads.wait_running("greedy")
    pid = wait_for("its process", lambda: pid_of(_SECONDS + 20))
    wait_for("it to be within", lambda: _memory(workloads, "own") == ("True", "WithinShare"))

    gpus.run_process(_minor(workloads, "own"), pid, memory=2 * _GIVEN_MIB * MIB)

    wait_for("its end", lambda: pid_of(_SECONDS + 20) is None)
    wait_for(
        "the condition of the claim",
        lambda: _memory(workloads, "own") == ("False", "GPUProcessEnded"),
    )
    wait_for(
        "Events on pod and claim",
        lambda: set(_events(workloads, "GPUProcessEnded")) == {"greedy", "own"},
    )
    (note,) = set(_events(workloads, "GPUProcessEnded").values())
    assert f"a process of pod {workloads.namespace}/greedy, container " in note
    assert f"with {2 * _GIVEN_MIB} MiB" in note
    assert f"than the {_GIVEN_MIB} MiB given" in note
    assert _events(workloads) == {}
    (row,) = [device for device in _top(plugin) if device["type"] == "share"]
    assert row["processesEnded"] == 1


def test_a_plugin_that_was_killed_tells_nothing_twice(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin, sharing: None
) -> None:
    for number, claim in enumerate(("first", "second")):
        workloads.claim(claim, _share())
        command = f"trap 'exit 0' TERM; sleep {_SECONDS + 10 + number} & wait"
        workloads.pod(claim, claim, container("main", "gpu", command=command))
    workloads.wait_running("first", "second")
    first = wait_for("a process", lambda: pid_of(_SECONDS + 10))
    second = wait_for("a process", lambda: pid_of(_SECONDS + 11))
    gpus.run_process(_minor(workloads, "first"), first, memory=2 * _GIVEN_MIB * MIB)
    wait_for("its Events", lambda: _count(workloads, "first") == 2)  # of the pod and the claim

    plugin.kill()
    plugin.start()
    gpus.run_process(_minor(workloads, "second"), second, memory=2 * _GIVEN_MIB * MIB)

    wait_for("the Events of the other", lambda: _count(workloads, "second") == 2)
    assert _count(workloads, "first") == 2
    assert _memory(workloads, "first") == ("False", "GPUMemoryExceeded")


def test_a_second_pod_of_a_claim_is_found_when_it_computes(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin, sharing: None
) -> None:
    """The kubelet prepares a claim once, whatever the number of its pods."""
    workloads.claim("shared", _share())
    workloads.pod("first", "shared")
    workloads.wait_running("first")
    wait_for("it to be watched", lambda: _memory(workloads, "shared") is not None)
    command = f"trap 'exit 0' TERM; sleep {_SECONDS + 1} & wait"
    workloads.pod("second", "shared", container("main", "gpu", command=command))
    workloads.wait_running("second")
    pid = wait_for("its process", lambda: pid_of(_SECONDS + 1))

    gpus.run_process(_minor(workloads, "shared"), pid, memory=100 * MIB)

    wait_for("both to be seen", lambda: _pods_seen(plugin) == {"first", "second"})
    (row,) = [device for device in _top(plugin) if device["type"] == "share"]
    assert row["memoryUsed"] == 100 * MIB


def _share() -> Object:
    amounts = {"memory": f"{_GIVEN_MIB}Mi", "cores": "10"}
    return request(deviceClassName=f"share.{DRIVER}", capacity={"requests": amounts})


def _minor(workloads: Workloads, claim: str) -> int:
    allocation = workloads.get("resourceclaim", claim)["status"]["allocation"]
    device: str = allocation["devices"]["results"][0]["device"]
    return int(device.split("-")[1])


def _memory(workloads: Workloads, claim: str) -> tuple[str, str] | None:
    """Status and reason of the condition of memory, if the claim has it."""
    for device in workloads.get("resourceclaim", claim)["status"].get("devices", ()):
        for condition in device["conditions"]:
            if condition["type"] == "MemoryWithinShare":
                return condition["status"], condition["reason"]
    return None


def _events(workloads: Workloads, reason: str = "GPUMemoryExceeded") -> dict[str, str]:
    """The notes of the Events with a reason, by the name of their object."""
    found = json.loads(workloads.kubectl("get", "events.events.k8s.io", "-o", "json"))
    return {
        event["regarding"]["name"]: event["note"]
        for event in found["items"]
        if event["reason"] == reason
    }


def _count(workloads: Workloads, name: str) -> int:
    """How many times it was told to the pod and the claim of a name."""
    found = json.loads(workloads.kubectl("get", "events.events.k8s.io", "-o", "json"))
    return sum(
        (event.get("series") or {}).get("count", 1)
        for event in found["items"]
        if event["reason"] == "GPUMemoryExceeded" and event["regarding"]["name"] == name
    )


def _top(plugin: Plugin) -> list[Object]:
    command = [sys.executable, "-m", "carina_dra", "top", "-o", "json"]
    url = f"http://127.0.0.1:{plugin.http_port}"
    printed = subprocess.run(
        [*command, "--metrics-url", url], check=True, capture_output=True, text=True
    )
    devices: list[Object] = json.loads(printed.stdout)["devices"]
    return devices


def _pods_seen(plugin: Plugin) -> set[str]:
    return {name for device in _top(plugin) for name in _names(device["pods"])}


def _names(objects: list[Object]) -> list[str]:
    return [each["name"] for each in objects]
