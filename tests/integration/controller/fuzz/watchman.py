"""What is measured of the controller while it runs: its memory, its life, its writes."""

import json
import re
import urllib.error
import urllib.request
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from carina_dra.kube.body import ObjectKey
from simulation.kubernetes.process import Process
from tests.integration.controller.fuzz.judge import Judge
from tests.integration.controller.fuzz.world import HOSTILE

_PEAK: Final = re.compile(r"^VmHWM:\s+([0-9]+) kB$", re.MULTILINE)
_TRACEBACK: Final = "Traceback (most recent call last)"
_FIGURES: Final = (
    "carina_cycles_total",
    "carina_cycle_phase_duration_seconds",
    "carina_groups_set_aside",
    "carina_objects_set_aside",
    "carina_decisions_undone_total",
    "carina_evictions_total",
)
_HEALTH_S: Final = 10.0
WINDOW: Final = 60.0
"""Seconds over which writes are averaged."""


@dataclass(frozen=True, slots=True)
class Writes:
    """Writes of the controller for objects of the hostile tenant that did not start."""

    number: int
    most_in_window: int
    """In any window of `WINDOW` seconds that begins with a write."""
    kinds: Mapping[str, int]
    """By verb and resource."""
    all_kinds: Mapping[str, int]
    """Of all writes of the controller, for everybody."""


def peak_bytes(process: Process) -> int:
    """The most memory that a process has had."""
    matched = _PEAK.search(Path("/proc", str(process.popen.pid), "status").read_text())
    assert matched is not None
    return int(matched[1]) * 1024


@dataclass(frozen=True, slots=True)
class ProcessorTime:
    """What the threads of a process have had of the processors, in nanoseconds."""

    ran: int
    waited: int
    """While they could run, and others did."""

    def slowdown(self, since: "ProcessorTime") -> float:
        """How many times longer its work has taken since then than on processors of its own."""
        ran = self.ran - since.ran
        return 1 + (self.waited - since.waited) / ran if ran > 0 else 1.0


def processor_time(process: Process) -> ProcessorTime:
    """What the process has had of the processors so far (Linux, sched-stats.rst)."""
    threads = Path("/proc", str(process.popen.pid), "task").glob("*/schedstat")
    times = [[int(word) for word in thread.read_text().split()] for thread in threads]
    return ProcessorTime(sum(one[0] for one in times), sum(one[1] for one in times))


def health(address: str, path: str = "healthz") -> str | None:
    """None if the process says that all is well, else what it says."""
    try:
        with urllib.request.urlopen(f"http://{address}/{path}", timeout=_HEALTH_S):
            return None
    except (urllib.error.URLError, OSError) as error:
        return str(error)


def figures(address: str) -> Mapping[str, float]:
    """The metrics of the controller about its cycles, and what it set aside."""
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=_HEALTH_S) as answer:
        lines = answer.read().decode().splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if line.startswith(_FIGURES))
    return {name: float(value) for name, value in pairs if float(value)}


def tracebacks(process: Process) -> Mapping[str, int]:
    """The last lines of exceptions in the log, with their numbers."""
    found: Counter[str] = Counter()
    inside = False
    for line in process.log.read_text(errors="replace").splitlines():
        if line.startswith(_TRACEBACK):
            inside = True
        elif inside and not line.startswith(" "):
            found[line[:300]] += 1
            inside = False
    return found


def hostile_writes(log: Path, judge: Judge) -> Writes:
    """Reads the audit log of the API server."""
    times: list[float] = []
    kinds: Counter[str] = Counter()
    everything: Counter[str] = Counter()
    with log.open() as lines:
        for line in lines:
            event = json.loads(line)
            reference = event.get("objectRef") or {}
            resource = "/".join(
                reference[part] for part in ("resource", "subresource") if part in reference
            )
            kind = f"{event['verb']} {resource}"
            if resource == "leases":
                continue
            everything[kind] += 1
            if _is_for_nothing(reference, judge):
                kinds[kind] += 1
                times.append(datetime.fromisoformat(event["requestReceivedTimestamp"]).timestamp())
    return Writes(len(times), _most(sorted(times)), kinds, everything)


def _is_for_nothing(reference: Mapping[str, Any], judge: Judge) -> bool:
    """Whether a write is for an object of the hostile tenant that has never started."""
    namespace, name = reference.get("namespace"), reference.get("name", "")
    if namespace not in HOSTILE:
        return False
    key = ObjectKey(namespace, name)
    if reference["resource"] == "events":
        key = ObjectKey(namespace, name.rpartition(".")[0])
    return judge.pods_of_claims.get(key, key) not in judge.started


def _most(times: list[float]) -> int:
    most, first = 0, 0
    for last, at in enumerate(times):
        while times[first] < at - WINDOW:
            first += 1
        most = max(most, last - first + 1)
    return most


def by_kind(writes: Mapping[str, int]) -> str:
    """The kinds that occur most, as text."""
    ordered = defaultdict(int, writes)
    return ", ".join(
        f"{kind} {ordered[kind]}" for kind in sorted(ordered, key=lambda k: -ordered[k])[:8]
    )
