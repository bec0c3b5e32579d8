"""What a user and an operator see when something is wrong with a claim, a GPU or the node."""

from simulation.kubernetes.cluster import KubectlError
from simulation.kubernetes.node import Node
from simulation.kubernetes.process import wait_for
from simulation.nvml.node import SimulatedNode
from tests.e2e.plugin import DRIVER, Plugin
from tests.e2e.workloads import RETRY_S, START_S, Workloads, container, gpu_config, request


def _taints(node: Node) -> dict[str, list[str]]:
    """The keys of the taints of each device of the node that has any."""
    lines = node.cluster.kubectl(
        *("get", "resourceslices", f"--field-selector=spec.nodeName={node.name}"),
        "-o",
        'jsonpath={range .items[*].spec.devices[?(@.taints)]}{.name} {.taints[*].key}{"\\n"}{end}',
    )
    return {line.split()[0]: line.split()[1:] for line in lines.splitlines()}


def _tainted(node: Node, key: str) -> set[str]:
    return {name for name, keys in _taints(node).items() if key in keys}


def _devices(node: Node) -> set[str]:
    names = node.cluster.kubectl(
        *("get", "resourceslices", f"--field-selector=spec.nodeName={node.name}"),
        *("-o", "jsonpath={.items[*].spec.devices[*].name}"),
    )
    return set(names.split())


def test_configuration_for_another_kind_of_device_is_named_in_an_event(
    workloads: Workloads, plugin: Plugin
) -> None:
    workloads.claim("claim", config=[gpu_config(kind="MigDeviceConfig")])
    workloads.pod("pod", "claim")

    said = workloads.wait_event("ResourceClaim", "claim", "PrepareFailed")

    assert "kind MigDeviceConfig" in said
    assert "kind MigDeviceConfig" in workloads.wait_event(
        "Pod", "pod", "FailedPrepareDynamicResources"
    )
    assert workloads.get("pod", "pod")["status"]["phase"] == "Pending"
    assert plugin.prepared_claims() == set()


def test_pod_whose_claim_cannot_be_prepared_can_be_deleted(workloads: Workloads) -> None:
    workloads.claim("claim", config=[gpu_config(kind="MigDeviceConfig")])
    workloads.pod("pod", "claim")
    workloads.wait_event("ResourceClaim", "claim", "PrepareFailed")

    workloads.delete("pod")


def test_gpu_that_falls_off_the_bus_is_tainted_and_reported(
    workloads: Workloads, gpus: SimulatedNode, node: Node
) -> None:
    wait_for("the slices", lambda: "gpu-3-monitor" in _devices(node))
    gpus.lose_gpu(3)

    tainted = {name for name in _devices(node) if name.startswith("gpu-3")} - {"gpu-3-monitor"}
    assert {"gpu-3", "gpu-3-share"} < tainted
    wait_for("the taint", lambda: _tainted(node, f"{DRIVER}/lost") == tainted)
    assert gpus.state.gpus[3].uuid in Workloads(node.cluster, "default").wait_event(
        "Node", node.name, "GPULost"
    )
    workloads.claim("all-that-is-left", request(count=7))
    workloads.pod("pod", "all-that-is-left")
    workloads.wait_running("pod")
    assert 3 not in {gpu.minor for gpu in workloads.gpus("pod")}


def test_gpu_that_is_reset_is_handed_out_again(
    workloads: Workloads, gpus: SimulatedNode, node: Node
) -> None:
    gpus.lose_gpu(3)
    wait_for("the taint", lambda: _taints(node))

    gpus.reset_gpu(3)

    wait_for("the taint to go", lambda: not _taints(node))
    workloads.claim("all", request(count=8))
    workloads.pod("pod", "all")
    workloads.wait_running("pod")


def test_gpus_come_and_go_with_the_hardware(
    plugin: Plugin, gpus: SimulatedNode, node: Node
) -> None:
    assert plugin.registration_socket.exists()
    assert "gpu-5" in _devices(node)

    gpus.unplug(5)
    wait_for("the device to go", lambda: "gpu-5" not in _devices(node))
    gpus.plug(5)
    wait_for("the device to come back", lambda: "gpu-5" in _devices(node))


def test_pod_whose_gpu_was_lost_meanwhile_starts_once_it_is_reset(
    workloads: Workloads, gpus: SimulatedNode, node: Node, plugin: Plugin
) -> None:
    tolerates = {"operator": "Exists", "effect": "NoExecute"}  # it would be evicted
    workloads.claim("claim", request(count=8, tolerations=[tolerates]))
    node.kubelet.stop()
    try:
        workloads.pod("pod", "claim")
        workloads.wait_scheduled("pod")
        gpus.lose_gpu(0)
        wait_for("the taint", lambda: _taints(node))
    finally:
        node.kubelet.start()

    said = workloads.wait_event("ResourceClaim", "claim", "PrepareFailed")
    assert "gpu-0" in said
    assert "reset the GPU" in said
    assert plugin.prepared_claims() == set()
    gpus.reset_gpu(0)
    workloads.wait_running("pod", timeout=RETRY_S)


def test_containers_start_again_after_a_reboot(
    workloads: Workloads, plugin: Plugin, gpus: SimulatedNode, node: Node
) -> None:
    # It outlives the exec that asks it to end: one that is killed with it has no exit code.
    ends = "trap 'exit 0' TERM; until [ -e /end ]; do sleep 1; done; sleep 1"
    main = container("main", "gpu", command=ends)
    workloads.pod_with_own_claim("pod", main, restartPolicy="Always")
    workloads.wait_running("pod")
    before = workloads.gpus("pod")
    plugin.stop()

    gpus.reboot()
    for spec in node.cdi_folder.iterdir():  # the runtime goes on, with the folder mounted
        spec.unlink()
    plugin.start()

    wait_for("the CDI spec to be back", lambda: len(plugin.prepared_claims()) == 1)
    workloads.run("pod", "touch /end")
    wait_for(
        "the container to start again",
        lambda: workloads.get("pod", "pod")["status"]["containerStatuses"][0]["restartCount"],
        timeout=START_S,
    )
    workloads.wait_running("pod", timeout=RETRY_S)
    after = wait_for("its GPU", lambda: workloads.gpus("pod"), retry_on=(KubectlError,))
    assert after == before
