"""24 hours of random faults of 8 GPUs, in virtual time, against an oracle that is told the truth.

The oracle knows what was done to each GPU, and nothing of how the plugin judges. It says which
states a GPU has to have at least, and, when it has been well for long, that it has none.
"""

import json
import subprocess
import sys
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from random import Random
from typing import Final

import pytest

from kubelet_plugin.inventory.damping import Damping
from kubelet_plugin.inventory.health import GpuLost, GpuUnreadable
from kubelet_plugin.inventory.health_record import read, written
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.node_health import NodeHealth, RememberedHealth
from kubelet_plugin.inventory.signals import SILENT, Signals, Slowdown
from tests.length import scaled
from tests.samples.gpus import LOST, NOTICED, UNREADABLE, observed

GPUS: Final = 8
LOOK_S: Final = 5
DAY_S: Final = 24 * 3600
LONGEST_S: Final = 1800.0
SETTLED_S: Final = 2 * LONGEST_S
"""After which a GPU that is well has to be ready: the longest wait, and one look more."""
DECISIVE: Final = {95: "needs-reset", 48: "needs-reset", 109: "needs-reset", 54: "drain"}
BENIGN: Final = (13, 31, 43, 45, 94)
ACTIONS: Final = {1: "needs-reset", 3: "drain", 4: "drain", 5: "degraded", 6: "needs-reset"}


@dataclass
class Truth:
    """One GPU, and what was done to it since it was last reset."""

    has_action: bool
    signals: Signals
    binding: int = 0
    silence: GpuLost | GpuUnreadable | None = None
    """Why it does not answer."""
    xids: set[int] = field(default_factory=set)
    well_since: int = 0
    """Seconds since the start; what it is worth while it is well."""

    def states(self) -> set[str]:
        """The states that it has to have."""
        if self.silence:
            return {self.silence.state}
        found = set[str]()
        if self.signals.recovery_action:
            found.add(ACTIONS[self.signals.recovery_action])
        if self.signals.slowdowns:
            found.add("degraded")
        if self.signals.rows_failed:
            found.add("memory-failed")
        if not self.has_action:
            found |= {DECISIVE[xid] for xid in self.xids}
        return found


class Day:
    """A node and its plugin."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.seconds = 0
        self.gpus = [
            Truth(minor < GPUS // 2, Signals(recovery_action=0) if minor < GPUS // 2 else SILENT)
            for minor in range(GPUS)
        ]
        self.kept = written(RememberedHealth())
        self.saves = 0
        self.most_bytes = 0
        self.said = 0
        self.start()

    def start(self) -> None:
        """Starts the plugin, as after a kill."""

        def say(_: object) -> None:
            self.said += 1

        self.health = NodeHealth(
            now=lambda: NOTICED + timedelta(seconds=self.seconds),
            damping=Damping(60.0, LONGEST_S),
            known=read(self.kept),
            store=self,
            reported=say,
        )

    def save(self, remembered: RememberedHealth) -> None:
        self.kept = written(remembered)
        self.saves += 1
        self.most_bytes = max(self.most_bytes, len(self.kept))

    def act(self) -> None:
        """Does something to a GPU, or to the plugin."""
        minor = self.random.randrange(GPUS)
        gpu = self.gpus[minor]
        acts: list[Callable[[int, Truth], None]] = [
            self.report,
            self.report_benign,
            self.ask,
            self.heat,
            self.silence,
            self.reset,
            self.reset,
        ]
        self.random.choice(acts)(minor, gpu)
        if self.random.random() < 0.05:
            self.start()

    def report(self, minor: int, gpu: Truth) -> None:
        number = self.random.choice(list(DECISIVE))
        self.health.xid(observed(minor).gpu.uuid, number, None)
        gpu.xids.add(number)

    def report_benign(self, minor: int, _truth: Truth) -> None:
        for _ in range(self.random.choice([1, 200])):
            self.health.xid(observed(minor).gpu.uuid, self.random.choice(BENIGN), None)

    def ask(self, _: int, gpu: Truth) -> None:
        if gpu.has_action:
            gpu.signals = replace(gpu.signals, recovery_action=self.random.choice(list(ACTIONS)))
        else:
            gpu.signals = replace(gpu.signals, rows_failed=True)

    def heat(self, _: int, gpu: Truth) -> None:
        gpu.signals = replace(gpu.signals, slowdowns=frozenset({Slowdown.HARDWARE_THERMAL}))

    def silence(self, _: int, gpu: Truth) -> None:
        gpu.silence = LOST if self.random.random() < 0.5 else UNREADABLE

    def reset(self, _: int, gpu: Truth) -> None:
        gpu.signals = Signals(recovery_action=0) if gpu.has_action else SILENT
        gpu.silence, gpu.xids = None, set()
        gpu.binding += 1

    def look(self) -> None:
        """Reads the GPUs, and compares."""
        seen = []
        for minor, gpu in enumerate(self.gpus):
            problems = (gpu.silence,) if gpu.silence else ()
            known = observed(minor, *problems, architecture="Hopper")
            state = replace(known.state, signals=gpu.signals, binding=f"boot/{gpu.binding}")
            seen.append(replace(known, state=state))
        inventory = self.health.judged(DriverReady(tuple(seen)))
        assert isinstance(inventory, DriverReady)
        for gpu, judged in zip(self.gpus, inventory.gpus, strict=True):
            self.compare(gpu, {problem.state for problem in judged.state.problems})

    def compare(self, gpu: Truth, states: set[str]) -> None:
        wanted = gpu.states()
        if wanted:
            gpu.well_since = self.seconds
        assert wanted <= states, (self.seconds, wanted, states)
        if self.seconds - gpu.well_since > SETTLED_S:
            assert not states, (self.seconds, states)


def test_a_day_of_faults_agrees_with_the_oracle_and_grows_nothing(
    request: pytest.FixtureRequest,
) -> None:
    day = Day(Random(20261126))
    looks = scaled(DAY_S // LOOK_S)
    tracemalloc.start()
    try:
        sizes = list[int]()
        for number in range(looks):
            day.seconds = number * LOOK_S
            if day.random.random() < 0.02:
                day.act()
            day.look()
            if number % (looks // 8) == looks // 16:
                sizes.append(tracemalloc.get_traced_memory()[0])
    finally:
        tracemalloc.stop()
    for gpu in day.gpus:
        day.reset(0, gpu)
    for _ in range(int(2 * SETTLED_S) // LOOK_S):
        day.seconds += LOOK_S
        day.look()

    hours = looks * LOOK_S / 3600
    print(
        f"{hours:.0f} h, {day.saves} writes of {day.most_bytes} bytes at most, {day.said} Events; "
        f"memory in KiB over time: {[size // 1024 for size in sizes]}"
    )
    record = json.loads(day.kept)
    assert (record["faults"], record["problems"], record["troubles"]) == ({}, {}, [])
    assert day.most_bytes < 64 * 1024
    assert max(sizes[4:]) < 1.5 * max(sizes[:4])
    assert day.said <= GPUS * len(BENIGN) * (hours * 6 + 1) * 2


HOUR_S: Final = 3600
GROWTH_KIB: Final = 2 * 1024
"""What the process may grow by after the first hour: the allocator's arenas, and no more."""


def print_resident_sizes(looks: int) -> None:
    """Runs the faults of a day, and prints the resident size of this process every hour, in KiB."""
    day = Day(Random(20261127))
    for number in range(looks):
        day.seconds = number * LOOK_S
        if day.random.random() < 0.02:
            day.act()
        day.look()
        if day.seconds % HOUR_S == HOUR_S - LOOK_S:
            status = Path("/proc/self/status").read_text()
            print(next(line.split()[1] for line in status.splitlines() if "VmRSS" in line))


def test_a_process_does_not_grow_over_a_day_of_faults() -> None:
    """Its resident size, which also has what no allocation of Python shows."""
    looks = max(scaled(DAY_S // LOOK_S), 3 * HOUR_S // LOOK_S)
    call = f"from {__name__} import print_resident_sizes; print_resident_sizes({looks})"
    done = subprocess.run([sys.executable, "-c", call], capture_output=True, text=True, check=True)

    sizes = [int(line) for line in done.stdout.split()]
    print(f"KiB by hour: {sizes}")
    assert len(sizes) == looks * LOOK_S // HOUR_S
    assert max(sizes) - sizes[0] < GROWTH_KIB
