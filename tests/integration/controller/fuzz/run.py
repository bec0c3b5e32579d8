"""A run: bystanders alone, then beside the hostile tenant, and what was found."""

import contextlib
import socket
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from fractions import Fraction
from pathlib import Path
from typing import Final

from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.kubernetes.process import Process, wait_for
from tests.integration.controller.fuzz import watchman
from tests.integration.controller.fuzz.bystander import BOUND_WITHIN, Bystander, Unit
from tests.integration.controller.fuzz.judge import Judge
from tests.integration.controller.fuzz.kubelets import Kubelets
from tests.integration.controller.fuzz.owner import BACK_WITHIN, Owner, Return
from tests.integration.controller.fuzz.recursion import deep_recursion
from tests.integration.controller.fuzz.tenant import Tenant, Usage
from tests.integration.controller.fuzz.watchman import WINDOW, Writes
from tests.integration.controller.fuzz.world import (
    HOSTILE,
    OWNER_QUOTA,
    QUEUE_ALLOWANCES,
    TARGETS,
    World,
)
from tests.integration.controller.live.site import Site

_QUIET: Final = (60.0, 1 / 3, 600.0)
"""Seconds for which bystanders are alone: at least, of the length, at most."""
_SAMPLE: Final = 2.0
_LASTS: Final = 10.0
"""Seconds for which more than a limit may be allocated: claims of pods that have ended stay
allocated until kube-controller-manager takes them back."""
_REPORT: Final = 30.0
_LEAST_UNITS: Final = 10
"""Units with room that say how long others wait."""
_TIMES_SLOWER: Final = 5.0
_QUANTILE: Final = 0.99
_MOST_MEMORY: Final = 2**30
_MOST_WRITES: Final = 20.0
_STOPS_WITHIN: Final = 2 * BACK_WITHIN
_LOG_LINES: Final = 200


@dataclass(slots=True)
class Report:
    """What was seen."""

    quiet: list[Unit] = field(default_factory=list)
    """Units of bystanders without the hostile tenant."""
    beside: list[Unit] = field(default_factory=list)
    """Units of bystanders beside it."""
    slowdown: float = 1.0
    """How many times longer the controller took than on processors of its own, meanwhile."""
    returns: list[Return] = field(default_factory=list)
    peak_bytes: int = 0
    ended: str | None = None
    """How the controller ended, if it did."""
    unhealthy: list[str] = field(default_factory=list)
    over: list[str] = field(default_factory=list)
    """A line for each limit or quota that was exceeded."""
    doubled: list[str] = field(default_factory=list)
    tracebacks: Mapping[str, int] = field(default_factory=dict)
    writes: Writes | None = None
    usage: Usage | None = None
    figures: Mapping[str, float] = field(default_factory=dict)
    """Metrics of the controller at the end."""

    def findings(self) -> list[str]:
        """What must not be, a line each."""
        lines = [*self.over, *self.unhealthy, *self.doubled]
        if self.ended is not None:
            lines.append(f"the controller ended: {self.ended}")
        if self.peak_bytes > _MOST_MEMORY:
            lines.append(f"the controller had {self.peak_bytes / 2**20:.0f} MiB")
        if (counted := sum(unit.counts for unit in self.beside)) < _LEAST_UNITS:
            lines.append(f"only {counted} of {len(self.beside)} units had room")
        lines += [
            f"{each.bound} of {OWNER_QUOTA} pods of the owner were bound after "
            f"{each.seconds:.0f} s: {each.why}"
            for each in self.returns
            if each.bound < OWNER_QUOTA
        ]
        if self.writes is not None and self.writes.most_in_window > _MOST_WRITES * WINDOW:
            lines.append(
                f"{self.writes.most_in_window / WINDOW:.0f} writes a second for pods that do not "
                f"start: {watchman.by_kind(self.writes.kinds)}"
            )
        return lines

    def delays(self, allowed: float = 1.0) -> list[str]:
        """How much later than they should bystanders are bound, a line each.

        The aim is for processors of the controller's own, so what it has waited for them counts.
        `allowed` is how many times as late they may be.
        """
        quiet, beside = _quantile(self.quiet), _quantile(self.beside)
        aim = min(BOUND_WITHIN, _TIMES_SLOWER * quiet) * self.slowdown * allowed
        if beside <= aim:
            return []
        late = f"99 of 100 units are bound within {beside:.2f} s, {quiet:.2f} s without the tenant"
        return [f"{late}; with processors shared as here the aim is {aim:.2f} s"]

    def summary(self) -> Iterator[str]:
        """What was measured, a line each."""
        for name, units in (("alone", self.quiet), ("beside the hostile tenant", self.beside)):
            counted = sorted(unit.seconds for unit in units if unit.counts)
            median = counted[len(counted) // 2] if counted else 0.0
            yield (
                f"bystanders {name}: {len(counted)} units with room of {len(units)}, median "
                f"{median:.2f} s, 99 of 100 within {_quantile(units):.2f} s"
            )
        yield "quota returned: " + (
            ", ".join(f"{each.bound} GPUs in {each.seconds:.1f} s" for each in self.returns) or "-"
        )
        yield f"processors shared: the controller took {self.slowdown:.2f} times as long"
        yield f"memory of the controller: {self.peak_bytes / 2**20:.0f} MiB"
        if self.writes is not None:
            yield f"writes of the controller: {watchman.by_kind(self.writes.all_kinds)}"
            yield (
                f"for hostile objects that did not start: {self.writes.number}, at most "
                f"{self.writes.most_in_window / WINDOW:.1f} a second; "
                f"{watchman.by_kind(self.writes.kinds)}"
            )
        if self.usage is not None:
            usage = self.usage
            yield (
                f"hostile tenant: {usage.steps} steps, {usage.writes} writes; accepted "
                f"{dict(usage.accepted)}; refused {dict(usage.refused)}"
            )
            for recipe, error in usage.errors.items():
                yield f"  {recipe}: {error}"
        for name, value in self.figures.items():
            yield f"  {name} {value:g}"
        for line, number in self.tracebacks.items():
            yield f"exception in the log, {number} times: {line}"


def run(
    world: World, *, seconds: float, seed: int, folder: Path, say: Callable[[str], None]
) -> Report:
    """Runs for a time beside the hostile tenant, after a part of it without; `say` gets a line.

    The files of a failure are written into `folder`.
    """
    say(f"seed {seed}, {seconds:.0f} s")
    report = Report()
    with contextlib.ExitStack() as cleanup:
        cleanup.enter_context(deep_recursion())
        kubelets = Kubelets(world.client, HOSTILE)
        kubelets.start()
        cleanup.callback(kubelets.stop)
        judge = Judge(world.client)
        judge.start()
        cleanup.callback(judge.stop)
        address = _free_address()
        controller = Site(world.cluster, world.client).start_controller(
            "fuzzed", http_address=address, verdict_seconds=5
        )
        cleanup.callback(controller.stop)
        wait_for("the controller to decide", lambda: watchman.health(address, "readyz") is None)
        owner = Owner(world.client)
        owner.prepare()
        bystander = Bystander(world.client, judge, lambda: OWNER_QUOTA if owner.is_asking else 0)
        bystander.prepare()
        cleanup.callback(bystander.close)
        tenant = Tenant(
            cleanup.enter_context(Client(from_kubeconfig(world.tenant_kubeconfig()))), seed, TARGETS
        )
        look = _Look(report, judge, controller, address, tenant, say)
        least, part, most = _QUIET
        with _thread(bystander.run, bystander.stop):
            look.watch(min(max(least, part * seconds), most))
            report.quiet = bystander.take()
            before = watchman.processor_time(controller)
            with _thread(owner.run, owner.stop), _thread(tenant.run, tenant.stop):
                look.watch(seconds)
        report.beside = bystander.take()
        with contextlib.suppress(OSError):  # it may have ended
            report.slowdown = watchman.processor_time(controller).slowdown(before)
        report.returns = owner.returns
        report.doubled = judge.doubled
        report.tracebacks = watchman.tracebacks(controller)
        with contextlib.suppress(OSError):  # it may have ended
            report.figures = watchman.figures(address)
        report.writes = watchman.hostile_writes(world.audit_log, judge)
        report.usage = tenant.usage
        if found := [*report.findings(), *report.delays()]:
            folder.mkdir(parents=True, exist_ok=True)
            tenant.write_last(folder / f"fuzz-{seed}.json")
            log = controller.log.read_text(errors="replace").splitlines()[-_LOG_LINES:]
            (folder / f"fuzz-{seed}.log").write_text("\n".join([*found, *log]) + "\n")
    return report


class _Look:
    """Samples while a run lasts."""

    def __init__(
        self,
        report: Report,
        judge: Judge,
        controller: Process,
        address: str,
        tenant: Tenant,
        say: Callable[[str], None],
    ) -> None:
        self._report = report
        self._judge = judge
        self._controller = controller
        self._address = address
        self._tenant = tenant
        self._say = say
        self._over_since: dict[str, float] = {}
        self._told: set[str] = set()

    def watch(self, seconds: float) -> None:
        """Looks until the time is over, or the controller has ended."""
        until = time.monotonic() + seconds
        says_at = time.monotonic() + _REPORT
        while (now := time.monotonic()) < until and self._is_alive():
            self._report.peak_bytes = watchman.peak_bytes(self._controller)
            if (problem := watchman.health(self._address)) is not None:
                self._report.unhealthy.append(f"/healthz: {problem}")
            self._compare(now)
            if now > says_at:
                says_at = now + _REPORT
                used = {name: f"{float(of):.1f}" for name, of in self._judge.used().items()}
                usage = self._tenant.usage
                self._say(f"{until - now:.0f} s left; {usage.steps} steps; GPUs used: {used}")
            time.sleep(_SAMPLE)

    def _is_alive(self) -> bool:
        status = self._controller.popen.poll()
        if status is not None:
            self._report.ended = f"exit status {status}"
        return status is None

    def _compare(self, now: float) -> None:
        """Compares what queues have with what they may have."""
        judge = self._judge
        found = list(_exceeded(judge.used(), judge.used_firmly(), judge.kept_firmly()))
        over = {what: amount for what, _, amount in found}
        queues = {what: queue for what, queue, _ in found}
        self._over_since = {
            what: self._over_since.get(what, now) for what in over if what not in self._told
        }
        for what, since in self._over_since.items():
            if now - since >= _LASTS:
                self._told.add(what)
                holders = "; ".join(self._judge.holders(queues[what]))
                self._report.over.append(f"{what}: {float(over[what]):.2f}: {holders}")


def _exceeded(
    used: Mapping[str, Fraction], firm: Mapping[str, Fraction], kept: Mapping[str, int]
) -> Iterator[tuple[str, str, Fraction]]:
    """What is exceeded, by which queue, and how much it has."""
    for name, allowance in QUEUE_ALLOWANCES.items():
        if used.get(name, Fraction()) > allowance.limit:
            yield f"queue {name} has more than its limit of {allowance.limit}", name, used[name]
        if firm.get(name, Fraction()) > allowance.quota:
            what = f"not preemptible groups of queue {name} have more than {allowance.quota}"
            yield what, name, firm[name]
        if kept.get(name, 0) > allowance.quota:
            what = f"not preemptible groups of queue {name} keep more GPUs than {allowance.quota}"
            yield what, name, Fraction(kept[name])


def _quantile(units: Sequence[Unit]) -> float:
    """The time within which 99 of 100 units with room are bound; 0 if there are none."""
    seconds = sorted(unit.seconds for unit in units if unit.counts)
    return seconds[min(int(_QUANTILE * len(seconds)), len(seconds) - 1)] if seconds else 0.0


@contextlib.contextmanager
def _thread(work: Callable[[], None], stop: Callable[[], None]) -> Iterator[None]:
    """Does work in a thread while the context lasts; raises what it raises."""
    with ThreadPoolExecutor(1) as executor:
        working = executor.submit(work)
        try:
            yield
        finally:
            stop()
        working.result(_STOPS_WITHIN)


def _free_address() -> str:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return f"127.0.0.1:{listening.getsockname()[1]}"
