"""`make bench`: the allocator and the node plugin in numbers, beside their goals.

The plugin is started as its pod starts it, under its own ServiceAccount against a real API server;
its GPUs are simulated, whose share of memory is measured and reported. Exits 1 if a goal is missed.
"""

import compileall
import subprocess
import sys
from functools import partial
from importlib.util import find_spec
from pathlib import Path

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from simulation.kubernetes.cluster import running_cluster
from tests.benchmarks import allocator
from tests.benchmarks.measured_plugin import Bench, bench
from tests.benchmarks.reference import Times, durable_write

CALLS = 800
MANY = 2000
STARTS = 7
_GPUS = 8
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


class Report:
    """Prints results, and remembers whether a goal was missed."""

    def __init__(self) -> None:
        self.missed = False

    def goal(self, what: str, value: float, goal: float, unit: str) -> None:
        """A result with a goal."""
        met = value <= goal
        self.missed |= not met
        verdict = "met" if met else "MISSED"
        print(f"{what:50} {value:8.2f} {unit:4} goal {goal:g} {unit}: {verdict}", flush=True)

    def fact(self, what: str, text: object) -> None:
        """A result without one."""
        print(f"{what:50} {text}", flush=True)


def main() -> None:
    """Measures, prints, and exits 1 if a goal is missed."""
    _compile()
    report = Report()
    allocator.measure(report)
    with running_cluster() as cluster, bench(cluster) as node:
        _starts(node, report)
        _calls(node, report)
    sys.exit(1 if report.missed else 0)


def _compile() -> None:
    """As an image has it: Python would compile at every start otherwise."""
    for name in ("carina_dra", "kubelet_plugin", "simulation"):
        spec = find_spec(name)
        if spec is not None and spec.submodule_search_locations:
            compileall.compile_dir(spec.submodule_search_locations[0], quiet=1, optimize=2)
    for path in sys.path:
        if Path(path).name == "site-packages":
            compileall.compile_dir(path, quiet=2, optimize=2)


def _starts(node: Bench, report: Report) -> None:
    seconds = []
    for _ in range(STARTS):
        node.remove_slices()
        with node.plugin() as plugin:
            seconds.append(plugin.seconds_to_publish())
    report.goal("start to slices published, median", sorted(seconds)[STARTS // 2], 1.0, "s")


def _calls(node: Bench, report: Report) -> None:
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
        empty = Times.of(partial(prepare, None) for _ in range(CALLS))
        prepares: list[float] = []
        unprepares: list[float] = []
        for number in range(CALLS):
            claim = claims[number % _GPUS]
            prepares += Times.of([partial(prepare, claim)]).sorted_ms
            unprepares += Times.of([partial(unprepare, claim)]).sorted_ms
        get = Times.of(
            partial(node.admin.get, RESOURCE_CLAIMS, "claim-0", namespace="default")
            for _ in range(CALLS)
        )
        write = Times.of(partial(durable_write, node.folder) for _ in range(CALLS))
        prepared, unprepared = Times(tuple(sorted(prepares))), Times(tuple(sorted(unprepares)))
        report.goal("NodePrepareResources, p50", prepared.at(0.5), 3.0, "ms")
        report.goal("NodePrepareResources, p99", prepared.at(0.99), 10.0, "ms")
        report.goal("NodeUnprepareResources, p50", unprepared.at(0.5), 3.0, "ms")
        report.goal("NodeUnprepareResources, p99", unprepared.at(0.99), 10.0, "ms")
        report.fact("  of which an empty call, client and all", empty)
        report.fact("  for comparison a GET of the claim", get)
        report.fact("  for comparison one durable write", write)
        parts = empty.at(0.5) + get.at(0.5) + write.at(0.5)
        report.fact("  prepare / (call + GET + write)", f"{prepared.at(0.5) / parts:.2f}")

        before = plugin.rss_mib()
        for number in range(MANY):
            prepare(claims[number % _GPUS])
            unprepare(claims[number % _GPUS])
        after = plugin.rss_mib()
        report.goal("memory, simulated NVML taken off", after - simulation, 66.0, "MiB")
        report.fact("  with it, and its share", f"{after:.1f} MiB, {simulation:.1f} MiB")
        report.goal(f"growth over {MANY} prepares", after - before, 0.5, "MiB")


if __name__ == "__main__":
    main()
