"""Measures the node plugin beside its goals.

The plugin is started as its pod starts it, under its own ServiceAccount against a real API server;
its GPUs are simulated, whose share of memory is measured and taken off.
"""

import compileall
import json
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.nvml.mig import read_layout
from kubelet_plugin.nvml.mig_instance import (
    create_compute_instance,
    create_gpu_instance,
    destroy_instance,
    find_instance,
    handle_of,
    is_mig_mode_on,
    switch_mig_mode,
)
from simulation.kubernetes.cluster import running_cluster
from simulation.nvml import installed
from tests.benchmarks.measured_plugin import Bench, bench
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.reference import Times, durable_write
from tests.benchmarks.subject import Hear

NAME: Final = "plugin"
_CALLS: Final = 800
_MANY: Final = 2000
_STARTS: Final = 7
_GPUS: Final = 8
_SIMULATION_MIB = """
import sys
def rss():
    lines = open("/proc/self/status").read().splitlines()
    return next(int(line.split()[1]) / 1024 for line in lines if line.startswith("VmRSS"))
import kubelet_plugin.main
before = rss()
from pathlib import Path
import simulation.nvml.__main__
from simulation.nvml import install
install(Path(sys.argv[1]))
print(rss() - before)
"""


def measure(hear: Hear) -> None:
    """Measures starts, calls and memory."""
    _compile()
    report = _Report(hear)
    with running_cluster() as cluster, bench(cluster) as node:
        _starts(node, report)
        _slices(node, report)
        _calls(node, report)


class _Report:
    """Makes measurements of results."""

    def __init__(self, hear: Hear) -> None:
        self._hear = hear

    def goal(self, what: str, value: float, goal: float, unit: str) -> None:
        """A result with a goal."""
        self._hear(Measurement(NAME, what, value, unit, goal=goal))

    def times(self, what: str, times: Times) -> None:
        """Times without a goal."""
        self._hear(Measurement(NAME, what, times.at(0.5), "ms", times.at(0.99)))

    def fact(self, what: str, value: float, unit: str) -> None:
        """A result without a goal."""
        self._hear(Measurement(NAME, what, value, unit))


def _compile() -> None:
    """As an image has it: Python would compile at every start otherwise."""
    for name in ("carina_dra", "kubelet_plugin", "simulation"):
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            compileall.compile_dir(spec.submodule_search_locations[0], quiet=1, optimize=2)
    for path in sys.path:
        if Path(path).name == "site-packages":
            compileall.compile_dir(path, quiet=2, optimize=2)


def _starts(node: Bench, report: _Report) -> None:
    seconds = []
    for _ in range(_STARTS):
        node.remove_slices()
        with node.plugin() as plugin:
            seconds.append(plugin.seconds_to_publish())
    report.goal("start to slices published, median", sorted(seconds)[_STARTS // 2], 1.0, "s")


def _slices(node: Bench, report: _Report) -> None:
    slices = node.slices()
    devices = sum(len(each["spec"].get("devices", ())) for each in slices)
    size = sum(len(json.dumps(each["spec"], separators=(",", ":"))) for each in slices)
    report.fact(f"  {devices} devices of {_GPUS} GPUs in {len(slices)} slices", size / 1024, "KiB")


def _calls(node: Bench, report: _Report) -> None:
    claims = [node.claim(f"claim-{minor}", f"gpu-{minor}") for minor in range(_GPUS)]
    simulation = float(
        subprocess.run(
            [sys.executable, "-OO", "-c", _SIMULATION_MIB, str(node.gpus.directory)],
            capture_output=True,
            text=True,
            check=True,
        ).stdout
    )
    with node.plugin() as plugin, plugin.calls() as (prepare, unprepare):
        plugin.seconds_to_publish()
        for claim in claims * 10:
            prepare(claim)
            unprepare(claim)
            plugin.observe()
        empty = Times.of(partial(prepare, None) for _ in range(_CALLS))
        prepares: list[float] = []
        unprepares: list[float] = []
        for number in range(_CALLS):
            claim = claims[number % _GPUS]
            prepares += Times.of([partial(prepare, claim)]).sorted_ms
            unprepares += Times.of([partial(unprepare, claim)]).sorted_ms
        get = Times.of(
            partial(node.admin.get, RESOURCE_CLAIMS, "claim-0", namespace="default")
            for _ in range(_CALLS)
        )
        write = Times.of(partial(durable_write, node.folder) for _ in range(_CALLS))
        prepared, unprepared = Times(tuple(sorted(prepares))), Times(tuple(sorted(unprepares)))
        report.goal("NodePrepareResources, p50", prepared.at(0.5), 3.0, "ms")
        report.goal("NodePrepareResources, p99", prepared.at(0.99), 10.0, "ms")
        report.goal("NodeUnprepareResources, p50", unprepared.at(0.5), 3.0, "ms")
        report.goal("NodeUnprepareResources, p99", unprepared.at(0.99), 10.0, "ms")
        report.times("  of which an empty call, client and all", empty)
        report.times("  for comparison a GET of the claim", get)
        report.times("  for comparison one durable write", write)
        parts = empty.at(0.5) + get.at(0.5) + write.at(0.5)
        report.fact("  prepare / (call + GET + write)", prepared.at(0.5) / parts, "x")

        partitions = [
            node.claim(f"partition-{minor}", f"gpu-{minor}-mig-1g10gb-19-6")
            for minor in range(_GPUS)
        ]
        amounts = {"memory": "8Gi", "cores": "10"}
        shares = [
            node.claim(
                f"share-{minor}",
                f"gpu-{minor}-share",
                shareID=f"{minor:08d}-0000-4000-8000-000000000000",
                consumedCapacity=amounts,
            )
            for minor in range(_GPUS)
        ]
        for kind, of_kind in (("share", shares), ("partition", partitions)):
            taken: list[float] = []
            undone: list[float] = []
            for number in range(_CALLS // 8):
                claim = of_kind[number % _GPUS]
                taken += Times.of([partial(prepare, claim)]).sorted_ms
                undone += Times.of([partial(unprepare, claim)]).sorted_ms
            report.times(f"  prepare of a {kind}", Times(tuple(sorted(taken))))
            report.times(f"  unprepare of a {kind}", Times(tuple(sorted(undone))))
        report.times("  of which simulated NVML, for a partition", _nvml_of_a_partition(node))

        before = plugin.rss_mib()
        for number in range(_MANY):
            prepare(claims[number % _GPUS])
            unprepare(claims[number % _GPUS])
        after = plugin.rss_mib()
        report.goal("memory, simulated NVML taken off", after - simulation, 72.0, "MiB")
        report.fact("  memory of the simulated NVML", simulation, "MiB")
        report.goal(f"growth over {_MANY} prepares", after - before, 0.5, "MiB")


def _nvml_of_a_partition(node: Bench) -> Times:
    """The calls of NVML that make a partition, with those that look for it, on one GPU."""
    host = HostPaths(node.gpus.root)
    gpu = node.gpus.state.gpus[0]
    address = next(slot.pci for slot in node.gpus.hardware.gpus if slot.minor == 0)
    site = MigSite(19, MigPlacement(0, 1))
    with installed(node.gpus.directory), NvmlLibrary(host.gpu_addresses).lease():
        handle = handle_of(gpu.uuid, address)
        profile = read_layout(handle).profile(site.profile_id)
        assert profile is not None
        if not is_mig_mode_on(handle):
            switch_mig_mode(handle, on=True)

        def make() -> None:
            find_instance(handle_of(gpu.uuid, address), site)
            create_gpu_instance(handle, site)
            made = find_instance(handle, site)
            assert made is not None
            create_compute_instance(handle, made.id, profile)
            find_instance(handle, site)

        taken: list[float] = []
        for _ in range(_STARTS):
            taken += Times.of([make]).sorted_ms
            destroy_instance(handle, site)
        switch_mig_mode(handle, on=False)
    return Times(tuple(sorted(taken)))
