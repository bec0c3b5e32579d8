"""The trace: kinds of nodes and of pods, and what published policies get of the GPUs."""

import csv
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Final

_HERE: Final = Path(__file__).parent
MILLI: Final = 1_000
WORKLOADS: Final = ("default", "gpushare40", "gpuspec20", "multigpu20", "cpu100")
UNTIL: Final = 1.3
"""Pods arrive until they ask for this part of the GPUs."""


@dataclass(frozen=True, slots=True)
class NodeKind:
    """Nodes that are alike."""

    count: int
    cpu_milli: int
    memory_mib: int
    gpus: int
    model: str


@dataclass(frozen=True, slots=True)
class PodKind:
    """Pods that are alike."""

    count: int
    cpu_milli: int
    memory_mib: int
    num_gpu: int
    gpu_milli: int
    """Of each GPU; 0 for pods with cpu only."""
    models: tuple[str, ...]
    """Empty for any."""

    @property
    def milli(self) -> int:
        """What it asks for of all GPUs, in thousandths."""
        return self.num_gpu * self.gpu_milli


def node_kinds() -> list[NodeKind]:
    """The nodes of the cluster."""
    return [
        NodeKind(
            int(row["count"]),
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["gpus"]),
            row["model"],
        )
        for row in _rows("nodes")
    ]


def workload(name: str) -> list[PodKind]:
    """The pods of a workload."""
    return [
        PodKind(
            int(row["count"]),
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"] or 0) if int(row["num_gpu"]) else 0,
            tuple(filter(None, row["gpu_models"].split("|"))),
        )
        for row in _rows(name)
    ]


def published(workload_name: str) -> dict[str, float]:
    """By policy: the percentage of all GPUs that are given out when pods ask for all of them."""
    rows = _rows("published")
    return {row["policy"]: float(row["at_100"]) for row in rows if row["workload"] == workload_name}


def arrivals(kinds: Sequence[PodKind], gpus: int, seed: int) -> list[PodKind]:
    """All pods of a workload, then some drawn again until they ask for `UNTIL`; shuffled."""
    random = Random(seed)
    pods = [kind for kind in kinds for _ in range(kind.count)]
    base, asked = list(pods), sum(kind.milli for kind in pods)
    while asked < UNTIL * gpus * MILLI:
        pods.append(random.choice(base))
        asked += pods[-1].milli
    random.shuffle(pods)
    return pods


def until(pods: Sequence[PodKind], gpus: int, part: float = 1.0) -> Iterator[PodKind]:
    """The first pods, until they ask for a part of the GPUs."""
    asked = 0
    for pod in pods:
        yield pod
        asked += pod.milli
        if asked >= part * gpus * MILLI:
            return


def _rows(name: str) -> list[dict[str, str]]:
    with (_HERE / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        return list(csv.DictReader(file))
