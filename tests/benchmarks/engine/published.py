"""The same jobs of whole GPUs where nothing else is published, and where partitions and shares are.

A queue has all GPUs of 50 nodes and goes on asking; one that comes takes 20 of them back. This is
15 minutes of virtual time as `carina simulate` runs them.
"""

from typing import Final

from carina_dra.kube.collector_pause import collector_paused
from controller.engine.decide.cycle import Engine
from controller.engine.simulate.file import read_trace
from controller.engine.simulate.simulator import simulate
from tests.benchmarks.gpus import PER_NODE
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.stopwatch import cpu_ms
from tests.benchmarks.subject import Hear

NAME: Final = "engine-published"
_NODES: Final = 50
_MOST: Final = 2
"""How many times as long it may take with all devices."""
_SCENARIO: Final = """
apiVersion: scheduling.carina.dev/v1alpha1
kind: Scenario
name: fleet
nodes:
- {{name: h100, count: {nodes}, cpu: 96, memory: 1Ti, gpus: 8, gpuMemory: 80Gi,
   product: "NVIDIA H100 80GB HBM3", devices: [{devices}]}}
queues:
- {{name: a, resources: [{{deviceClass: gpu.carina.dev, quota: {nodes}}}]}}
- {{name: b, resources: [{{deviceClass: gpu.carina.dev, quota: {nodes}}}]}}
jobs:
- {{name: fill, queue: a, count: {gpus}, duration: 10h, gpus: 1, cpu: 1}}
- {{name: wait, queue: a, count: 20, arrival: 1m, duration: 1h, gpus: 1, cpu: 1}}
- {{name: back, queue: b, count: 20, every: 30s, arrival: 2m, duration: 1h, gpus: 1, cpu: 1}}
until: 15m
"""


def measure(hear: Hear, *, scale: float = 1) -> None:
    """Measures both; the goal is their ratio."""
    nodes = max(4, round(_NODES * scale))
    whole, everything = (_seconds(nodes, devices) for devices in ("gpu", "gpu, mig, share"))
    what = f"{nodes} nodes, {PER_NODE * nodes + 40} jobs of whole GPUs"
    hear(Measurement(NAME, f"{what}, whole GPUs published", whole, "s"))
    hear(Measurement(NAME, f"{what}, everything published", everything, "s", goal=_MOST * whole))


def _seconds(nodes: int, devices: str) -> float:
    text = _SCENARIO.format(nodes=nodes, gpus=PER_NODE * nodes, devices=devices)
    with collector_paused(freeze=True):  # as a process reads its first lists
        trace = read_trace("fleet.yaml", text.encode())
    begun = cpu_ms()
    simulate(trace, lambda state: Engine(state).decide)
    return (cpu_ms() - begun) / 1000
