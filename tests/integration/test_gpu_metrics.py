"""Metrics of GPUs and partitions, from a simulated NVML to Prometheus' text."""

import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pynvml
import pytest
from prometheus_client import CollectorRegistry, generate_latest

from carina_dra.config.device import GpuConfig
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.host import HostPaths
from kubelet_plugin.nvml.usage import GpuUsage, UsageReader
from kubelet_plugin.prepare.resource import MadeInstance, instance_identity
from kubelet_plugin.report.gpu_metrics import GpuMetrics, partitions
from kubelet_plugin.report.usage_cache import UsageCache
from simulation.nvml import SimulatedNode, install, uninstall
from simulation.nvml.mig import device_uuid
from tests.fakes.mig_node import MigNode

PART = "gpu-0-mig-1g10gb-19-6"


@dataclass
class Node:
    """A node whose metrics are scraped."""

    mig: MigNode
    live: LiveClaims = field(default_factory=LiveClaims)

    @property
    def gpus(self) -> SimulatedNode:
        return self.mig.simulated

    def claim(self, name: str, *devices: str) -> NodeClaim:
        config = GpuConfig()
        allocated = [AllocatedDevice("gpu", "node-1", device, config) for device in devices]
        return NodeClaim(name, "default", name, tuple(allocated))

    def scrape(self) -> list[str]:
        host = HostPaths(self.gpus.root)
        library = NvmlLibrary(host.gpu_addresses)
        inventory = self.mig.inventory()
        self.live.gpus_seen(inventory)
        now = self.live.now
        usage = UsageReader(library).read(
            [known.gpu for known in inventory.gpus],
            [part.uuid for part in partitions(now)],
        )
        registry = CollectorRegistry()
        registry.register(GpuMetrics(lambda: now, lambda: usage))
        return generate_latest(registry).decode().splitlines()


def of(lines: list[str], metric: str, *labels: str) -> list[str]:
    """The values of the series of a metric with these labels."""
    return [
        line.rpartition(" ")[2]
        for line in lines
        if line.startswith(f"{metric}{{") and all(label in line for label in labels)
    ]


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    simulated = SimulatedNode.create(tmp_path / "node", "dgx-h100", name="node-1")
    install(simulated.directory)
    yield Node(MigNode(simulated, tmp_path / "plugin"))
    uninstall()


def test_every_gpu_has_its_facts_and_states(node: Node) -> None:
    handle = node.mig.handle(1)
    pynvml.nvmlDeviceSetComputeMode(handle, pynvml.NVML_COMPUTEMODE_PROHIBITED)

    lines = node.scrape()

    assert of(lines, "carina_gpu_info", 'gpu="0"', 'mig_mode="off"', "H100") == ["1.0"]
    assert of(lines, "carina_gpu_state", 'gpu="0"', 'state="ready"') == ["1.0"]
    assert of(lines, "carina_gpu_state", 'gpu="0"', 'state="compute-mode"') == ["0.0"]
    assert of(lines, "carina_gpu_state", 'gpu="1"', 'state="compute-mode"') == ["1.0"]


def test_memory_and_utilization_are_those_of_nvml(node: Node) -> None:
    node.gpus.run_process(0, 4242)

    lines = node.scrape()

    assert of(lines, "carina_gpu_memory_reserved_bytes", 'gpu="0"') == ["6.291456e+08"]
    assert of(lines, "carina_gpu_utilization_ratio", 'gpu="0"') == ["1.0"]
    assert of(lines, "carina_gpu_utilization_ratio", 'gpu="1"') == ["0.0"]


def test_a_gpu_names_the_only_claim_that_holds_it(node: Node) -> None:
    node.live.recorded(
        [
            node.claim("train", "gpu-0"),
            node.claim("a", "gpu-1-share"),
            node.claim("b", "gpu-1-share"),
        ]
    )

    node.live.made_for("train", "worker-0")

    lines = node.scrape()

    metric = "carina_gpu_memory_used_bytes"
    named = (
        'pod="worker-0"',
        'container=""',
        'dra_claim_namespace="default"',
        'dra_claim_name="train"',
    )
    assert len(of(lines, metric, 'gpu="0"', 'namespace="default"', *named)) == 1
    assert len(of(lines, metric, 'gpu="1"', 'dra_claim_name=""')) == 1
    shares = of(lines, "carina_device_claim_info", 'dra_device_name="gpu-1-share"')
    assert shares == ["1.0", "1.0"]


def test_a_partition_has_memory_of_its_own_and_names_its_claim(node: Node) -> None:
    node.mig.prepare("train", PART)
    (instance,) = node.mig.instances(0)
    (compute,) = instance.compute_instances
    uuid = device_uuid(node.gpus.state.gpus[0].uuid, instance.id, compute.id)
    claim = node.claim("train", PART)
    node.live.recorded([claim])
    made = {instance_identity(PART): MadeInstance(instance.id, compute.id, uuid)}
    node.live.set_up(claim, made)

    lines = node.scrape()

    labels = 'GPU_I_PROFILE="1g.10gb"', f'GPU_I_ID="{instance.id}"', 'dra_claim_name="train"'
    (total,) = of(lines, "carina_gpu_memory_total_bytes", *labels)
    assert float(total) < 10 * 2**30
    assert of(lines, "carina_gpu_utilization_ratio", *labels) == []


def test_a_scrape_reads_the_driver_at_most_every_30_seconds() -> None:
    now, reads = [0.0], list[float]()

    def read() -> dict[str, GpuUsage]:
        reads.append(now[0])
        return {}

    cache = UsageCache(read, clock=lambda: now[0])
    for at in (0.0, 29.0, 30.0, 31.0):
        now[0] = at
        cache.latest()
    assert reads == [0.0, 30.0]


def test_a_driver_that_hangs_holds_no_scrape_and_its_values_are_not_shown_for_long() -> None:
    now, hang, begun = [0.0], threading.Event(), threading.Event()
    known = {"GPU-1": GpuUsage(10, 1, None, None)}

    def read() -> dict[str, GpuUsage]:
        if now[0]:
            begun.set()
            hang.wait()
        return known

    cache = UsageCache(read, clock=lambda: now[0])
    assert cache.latest() == known
    now[0] = 40.0
    assert cache.latest() == known
    assert begun.is_set()
    now[0] = 121.0
    assert cache.latest() == {}
    hang.set()
