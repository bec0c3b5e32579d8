"""What schedulers took, as measurements for the report."""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Final

from tests.benchmarks.controller.cost import Cost
from tests.benchmarks.controller.trial import Trial
from tests.benchmarks.measurement import Measurement
from tests.benchmarks.subject import Hear

_SERVER: Final = ("kube-apiserver", "etcd")
_RARE: Final = 0.02
"""Kinds of requests of which a pod has fewer are not named."""


@dataclass(frozen=True, slots=True)
class Goals:
    """The most that a scheduler may take; None where there is no goal."""

    binding: float | None
    """Time from one bound pod to the next, as a part of kube-scheduler's."""
    cost: float = 1.2
    """Processor time of the API server and etcd, and requests, as a part of kube-scheduler's."""
    refusal_s: float = 1.0
    """Seconds until a "no" is seen."""


@dataclass(frozen=True, slots=True)
class Results:
    """What was measured of a scheduler on one fleet."""

    scheduler: str
    """The name of the process that chooses devices."""
    trials: tuple[Trial, ...]
    gang: Trial
    """Pods that start together, where the scheduler knows gangs."""
    refusals_s: tuple[float, ...]
    """Seconds until a "no" was seen, for each pod that had no room."""
    idle: Cost
    """What was used without pods."""


class Report:
    """Reports the results for one fleet."""

    def __init__(self, hear: Hear, name: str, nodes: int) -> None:
        self._hear = hear
        self._name = name
        self._nodes = nodes

    def of(self, results: Results, refusal_goal_s: float | None) -> None:
        """What a scheduler took; the worst of its turns beside their median."""
        say = partial(self._say, results.scheduler)
        trials = results.trials
        rate = median(1000 / trial.binding_ms for trial in trials)
        whole = median(trial.pods / trial.whole_s for trial in trials)
        note = f"{rate:.0f} pods/s, {whole:.0f} since all were created"
        say("from one bound pod to the next", _over(trials, _binding), "ms", note=note)
        say("API server and etcd, processor time a pod", _over(trials, _server), "ms")
        for process in trials[0].cost.processor_s:
            if process not in _SERVER:
                each = [trial.processor_ms(process) for trial in trials]
                say(f"{process}, processor time a pod", each, "ms")
        say("requests a pod", _over(trials, _requests), "", note=_kinds(trials[-1]))
        say("memory after it", [trial.memory_mib[results.scheduler] for trial in trials], "MiB")
        for process, used_s in results.idle.processor_s.items():
            percent = used_s * 100 / results.idle.seconds
            say(f"{process}, idle, of a processor", [percent], "%")
        say(f"{results.gang.pods} pods together, until all are bound", [results.gang.whole_s], "s")
        say('until a "no" is seen', results.refusals_s, "s", goal=refusal_goal_s)

    def beside(self, other: Results, stock: Results, goals: Goals) -> None:
        """What a scheduler took as a part of what kube-scheduler took, turn by turn."""
        say = partial(self._say, f"{other.scheduler} / {stock.scheduler}")
        for what, of_trial, goal in (
            ("from one bound pod to the next", _binding, goals.binding),
            ("API server and etcd, processor time", _server, goals.cost),
            ("requests", _requests, goals.cost),
            ("processor time of all", _all_processes, None),
        ):
            pairs = zip(other.trials, stock.trials, strict=True)
            say(what, [of_trial(ours) / of_trial(theirs) for ours, theirs in pairs], "x", goal=goal)

    def _say(
        self,
        who: str,
        what: str,
        values: Sequence[float],
        unit: str,
        *,
        goal: float | None = None,
        note: str = "",
    ) -> None:
        worst = max(values) if len(values) > 1 else None
        self._hear(
            Measurement(
                self._name,
                f"{self._nodes} nodes, {who}: {what}",
                median(values),
                unit,
                worst,
                goal,
                note=note,
            )
        )


def _over(trials: Sequence[Trial], of_trial: Callable[[Trial], float]) -> list[float]:
    return [of_trial(trial) for trial in trials]


def _binding(trial: Trial) -> float:
    return trial.binding_ms


def _server(trial: Trial) -> float:
    return trial.processor_ms(*_SERVER)


def _requests(trial: Trial) -> float:
    return trial.requests


def _all_processes(trial: Trial) -> float:
    return trial.processor_ms(*trial.cost.processor_s)


def _kinds(trial: Trial) -> str:
    """The requests a pod by verb and resource, the most frequent first."""
    of_kinds = Counter(trial.cost.requests).most_common()
    return ", ".join(
        f"{kind} {number / trial.pods:.2g}"
        for kind, number in of_kinds
        if number / trial.pods >= _RARE
    )
