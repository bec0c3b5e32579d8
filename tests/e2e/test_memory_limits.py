"""A pod with a share of a GPU has a limit on its cgroup, as the real kubelet makes it.

The driver is simulated, and so is that an allocation beyond the limit fails.
"""

from collections.abc import Callable
from pathlib import Path

import pytest

from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, LIMITS_MEMORY, Plugin, cgroup_hierarchy
from tests.e2e.workloads import RETRY_S, Object, Workloads, container, request

_SHARE = request(deviceClassName=f"share.{DRIVER}", capacity={"requests": {"memory": "20Gi"}})
_LIMIT = 20 * 2**30
_SOME = {"cpu": "10m", "memory": "32Mi"}
_QOS: dict[str, Object] = {
    "BestEffort": {},
    "Burstable": {"requests": _SOME},
    "Guaranteed": {"requests": _SOME, "limits": _SOME},
}


@pytest.fixture
def gpus(tmp_path: Path) -> SimulatedNode:
    """The node's GPUs, with a driver that limits the memory of cgroups."""
    return SimulatedNode.create(
        tmp_path / "gpus", "hgx-h200-sxm", name="node", driver_version=LIMITS_MEMORY
    )


@pytest.fixture
def plugin(new_plugin: Callable[[str], Plugin]) -> Plugin:
    """A running plugin."""
    plugin = new_plugin("plugin")
    plugin.cgroup_root = cgroup_hierarchy()
    plugin.start()
    return plugin


def _limits(gpus: SimulatedNode) -> dict[Path, int]:
    return {
        Path(path): limit
        for minor in gpus.state.gpus
        for path, limit in gpus.memory_limits(minor).items()
    }


def _container(resources: Object) -> Object:
    main = container("main", "gpu")
    return {**main, "resources": {**main["resources"], **resources}}


@pytest.mark.parametrize("qos", _QOS)
def test_the_limit_is_on_the_cgroup_of_the_pod(
    workloads: Workloads, gpus: SimulatedNode, qos: str
) -> None:
    workloads.claim("share", _SHARE)
    workloads.pod("pod", "share", _container(_QOS[qos]))
    workloads.wait_running("pod")

    pod = workloads.get("pod", "pod")
    ((cgroup, limit),) = _limits(gpus).items()
    lines = workloads.run("pod", "cat /proc/1/cgroup").splitlines()

    assert pod["status"]["qosClass"] == qos
    assert limit == _LIMIT
    assert cgroup.name == f"pod{pod['metadata']['uid']}"
    assert any(f"/{cgroup.name}/" in line for line in lines), "no container is below it"
    assert "kernel" in workloads.environment("pod").values()

    workloads.delete("pod")
    assert _limits(gpus) == {}


def test_no_container_starts_before_its_pod_has_the_limit(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    gpus.hold_limits_at(0)
    workloads.claim("share", _SHARE)
    workloads.pod("pod", "share")
    wait_for("Prepare to fail", lambda: "claim call is being retried" in plugin.log())

    (status,) = workloads.get("pod", "pod")["status"]["containerStatuses"]
    assert status["state"].keys() == {"waiting"}

    gpus.hold_limits_at(None)
    workloads.wait_running("pod", timeout=RETRY_S)
    assert list(_limits(gpus).values()) == [_LIMIT]


def test_a_claim_that_two_pods_use_says_that_it_is_not_enforced(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    workloads.claim("share", _SHARE)
    plugin.freeze()
    workloads.pod("one", "share")
    workloads.pod("two", "share")
    workloads.wait_scheduled("one")
    workloads.wait_scheduled("two")
    plugin.thaw()
    workloads.wait_running("one", "two", timeout=RETRY_S)

    assert "kernel" not in workloads.environment("one").values()
    assert "none" in workloads.environment("two").values()
