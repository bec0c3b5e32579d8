"""What the processes of a control plane have used, and the requests that were made.

Processor times and memory are the kernel's; requests are counted by the API server.
https://kubernetes.io/docs/reference/instrumentation/metrics/ (apiserver_request_total)
"""

import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from prometheus_client.parser import text_string_to_metric_families

from simulation.kubernetes.cluster import Cluster
from simulation.kubernetes.process import Process

_REQUESTS: Final = "apiserver_request_total"
_TICKS_A_SECOND: Final = os.sysconf("SC_CLK_TCK")
_UTIME: Final = 11
"""The index of the user time in /proc/PID/stat, after the name of the program; see proc(5)."""
_SETTLING_S: Final = 1.0
"""For how long work goes on when all pods are bound: Events are written late."""
_QUIET_S, _AT_MOST_S = 0.5, 10.0


@dataclass(frozen=True, slots=True)
class Cost:
    """What was used while a meter ran."""

    seconds: float
    processor_s: Mapping[str, float]
    """Processor time in seconds, by the name of the process."""
    requests: Mapping[str, int]
    """The number of requests by verb and resource, such as `PUT resourceclaims/status`."""


class Meter:
    """Measures what is used from its creation until `stop`.

    To read the number of requests takes the API server a tenth of a second of processor time, which
    is not counted.
    """

    def __init__(self, cluster: Cluster, processes: Sequence[Process]) -> None:
        self._cluster = cluster
        self._processes = processes
        self._requests = _requests(cluster)
        self._begun = time.perf_counter()
        self._processor_s = self._read_processor_s()

    def stop(self) -> Cost:
        """What was used, including what was left to do; waits for that."""
        time.sleep(_SETTLING_S)
        seconds = time.perf_counter() - self._begun
        used = self._read_processor_s()
        return Cost(
            seconds,
            {name: total - self._processor_s[name] for name, total in used.items()},
            self._requests_when_quiet() - self._requests,
        )

    def _read_processor_s(self) -> dict[str, float]:
        return {process.name: _processor_s(process) for process in self._processes}

    def _requests_when_quiet(self) -> Counter[str]:
        """The requests when no more come, or after 10 seconds."""
        end = time.monotonic() + _AT_MOST_S
        before = _requests(self._cluster)
        while time.monotonic() < end:
            time.sleep(_QUIET_S)
            now = _requests(self._cluster)
            if now == before:
                break
            before = now
        return before


def resident_mib(process: Process) -> float:
    """The resident memory of a process, in MiB."""
    status = Path(f"/proc/{process.popen.pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) / 1024 for line in status if line.startswith("VmRSS"))


def _processor_s(process: Process) -> float:
    stat = Path(f"/proc/{process.popen.pid}/stat").read_text()
    fields = stat.rpartition(")")[2].split()
    return (int(fields[_UTIME]) + int(fields[_UTIME + 1])) / _TICKS_A_SECOND


def _requests(cluster: Cluster) -> Counter[str]:
    """The requests for objects; watches are counted when they end, so they are left out."""
    metrics = cluster.kubectl("get", "--raw", "/metrics")
    lines = [line for line in metrics.splitlines() if line.startswith(f"{_REQUESTS}{{")]
    requests: Counter[str] = Counter()
    for family in text_string_to_metric_families("\n".join(lines) + "\n"):
        for sample in family.samples:
            verb, resource = sample.labels["verb"], sample.labels["resource"]
            if resource and verb != "WATCH":
                subresource = sample.labels["subresource"]
                path = f"{resource}/{subresource}" if subresource else resource
                requests[f"{verb} {path}"] += int(sample.value)
    return requests
