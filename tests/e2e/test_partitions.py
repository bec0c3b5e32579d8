"""MIG partitions on the real scheduler, kubelet and containerd."""

from collections.abc import Sequence

from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import Plugin
from tests.e2e.workloads import RETRY_S, Object, Workloads, request

_CLASS = "mig.gpu.carina.dev"


def _on_gpu(gpus: SimulatedNode, minor: int, kind: str = "mig", *conditions: str) -> Object:
    """A selector for devices of a kind on one GPU."""
    uuid = gpus.state.gpus[minor].uuid
    name = "parentUUID" if kind == "mig" else "uuid"
    attributes = "device.attributes['gpu.carina.dev']"
    own = (f"{attributes}.{name} == '{uuid}'", *conditions)
    return {"cel": {"expression": " && ".join(own)}}


def _partition(gpus: SimulatedNode, minor: int, *conditions: str) -> Object:
    return request(
        "partition",
        deviceClassName=_CLASS,
        selectors=[_on_gpu(gpus, minor, "mig", *conditions)],
    )


def _pods(workloads: Workloads, names: Sequence[str], wanted: Object) -> None:
    for name in names:
        workloads.claim(name, wanted)
        workloads.pod(name, name)


def _instances(gpus: SimulatedNode, minor: int) -> int:
    return len(gpus.state.gpus[minor].instances)


def _devices(workloads: Workloads, claim: str) -> set[str]:
    return workloads.allocated(workloads.get("resourceclaim", claim))


def test_partition_by_memory_is_the_smallest_that_suffices(
    workloads: Workloads, gpus: SimulatedNode
) -> None:
    wanted = request("partition", deviceClassName=_CLASS, capacity={"requests": {"memory": "15Gi"}})
    _pods(workloads, ["pod"], wanted)
    workloads.wait_running("pod")

    (device,) = _devices(workloads, "pod")
    assert "-mig-1g18gb-" in device
    minor = int(device.split("-")[1])
    (instance,) = gpus.state.gpus[minor].instances
    assert (instance.size, len(instance.compute_instances)) == (1, 1)

    nodes = workloads.run("pod", "find /dev -type c -name 'nvidia*'").split()
    assert f"/dev/nvidia{minor}" in nodes
    assert len([node for node in nodes if "/nvidia-cap" in node]) == 2
    values = workloads.environment("pod").values()
    assert [value for value in values if value.startswith("MIG-")]

    workloads.delete("pod")
    assert gpus.state.gpus[minor].instances == ()


def test_seven_of_the_smallest_fit_on_a_gpu_and_exclude_the_whole(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    smallest = _partition(gpus, 3, "device.attributes['gpu.carina.dev'].profile == '1g.18gb'")
    seven = [f"part-{number}" for number in range(7)]
    _pods(workloads, seven, smallest)
    workloads.wait_running(*seven, timeout=RETRY_S)
    assert _instances(gpus, 3) == 7

    _pods(workloads, ["eighth"], smallest)
    assert workloads.why_not_scheduled("eighth") is not None
    whole = request(selectors=[_on_gpu(gpus, 3, "gpu")])
    _pods(workloads, ["whole"], whole)
    assert workloads.why_not_scheduled("whole") is not None

    workloads.delete("part-0")
    workloads.kubectl("delete", "resourceclaim", "part-0")
    workloads.wait_running("eighth", timeout=RETRY_S)

    for name in (*seven[1:], "eighth"):
        workloads.begin_delete(name)
    for name in (*seven[1:], "eighth"):
        workloads.wait_gone(name, timeout=RETRY_S)
        workloads.kubectl("delete", "resourceclaim", name)
    workloads.wait_running("whole", timeout=RETRY_S)
    assert _instances(gpus, 3) == 0
    assert not gpus.state.gpus[3].mig_enabled
    assert plugin.prepared_claims() == {workloads.get("resourceclaim", "whole")["metadata"]["uid"]}


def test_killed_plugin_has_the_partition_still(
    workloads: Workloads, gpus: SimulatedNode, plugin: Plugin
) -> None:
    _pods(workloads, ["pod"], _partition(gpus, 5))
    workloads.wait_running("pod")
    before = gpus.state.gpus[5].instances

    plugin.kill()
    plugin.start()

    assert gpus.state.gpus[5].instances == before
    workloads.delete("pod")
    wait_for("the instance to be gone", lambda: not gpus.state.gpus[5].instances)


def test_monitor_sees_a_gpu_with_its_partitions(workloads: Workloads, gpus: SimulatedNode) -> None:
    _pods(workloads, ["pod"], _partition(gpus, 1))
    workloads.wait_running("pod")
    label = "resource.kubernetes.io/admin-access=true"
    workloads.kubectl("label", "namespace", workloads.namespace, label)
    of_all = request(
        deviceClassName="monitor.gpu.carina.dev", allocationMode="All", adminAccess=True
    )
    _pods(workloads, ["monitor"], of_all)
    workloads.wait_running("monitor")

    assert len(workloads.gpus("monitor")) == 8
    assert "nvidia-cap2" in workloads.run("monitor", "ls /dev/nvidia-caps")
