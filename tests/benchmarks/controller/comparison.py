"""Measures kube-scheduler, and the controller beside it, on fleets of three sizes.

Nodes have eight GPUs, and each pod a claim for one of them, from a template. The schedulers take
turns on one control plane, so that a busy machine slows all of them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.controller import trial
from tests.benchmarks.controller.carina import CarinaController
from tests.benchmarks.controller.cost import Cost
from tests.benchmarks.controller.results import Goals, Report, Results
from tests.benchmarks.controller.scheduler import KubeScheduler, Scheduler
from tests.benchmarks.controller.site import Site, running_site
from tests.benchmarks.controller.trial import Trial
from tests.benchmarks.subject import Hear, in_time

NAME: Final = "controller"
_STOCK: Final = KubeScheduler()
_OTHERS: Final[tuple[Scheduler, ...]] = (CarinaController(),)
_TIMES_STOCK: Final[Mapping[int, float]] = {200: 1.0, 1000: 1.5, 5000: 3.0}
"""How many times as many pods in a second as with kube-scheduler, by the number of nodes."""
_PODS, _GANG, _WARM_UP = 400, 512, 40
_ROUNDS, _ROUNDS_S = 3, 150.0
_REFUSALS: Final = 5
_IDLE_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class Size:
    """How much is measured."""

    pods: int
    """How many pods a turn has."""
    gang: int
    """How many pods the gang has."""
    warm_up: int
    """How many pods each scheduler schedules before its turns."""
    rounds: int
    """How many turns each scheduler has, where time allows."""
    rounds_s: float
    """Seconds after which no further round begins."""
    refusals: int
    """How many pods get a "no" from each scheduler."""
    idle_s: float


def measure(hear: Hear, *, scale: float) -> None:
    """Measures fleets of `scale` times 200, 1,000 and 5,000 nodes; goals are for full size."""
    for nodes, times in _TIMES_STOCK.items():
        size = Size(
            pods=max(2, round(_PODS * scale)),
            gang=max(2, round(_GANG * scale)),
            warm_up=max(2, round(_WARM_UP * scale)),
            rounds=_ROUNDS,
            rounds_s=_ROUNDS_S,
            refusals=_REFUSALS,
            idle_s=_IDLE_S,
        )
        with running_site(max(1, round(nodes * scale))) as site:
            measure_on(site, hear, size, Goals(binding=1 / times))


def measure_on(site: Site, hear: Hear, size: Size, goals: Goals) -> None:
    """Measures one fleet; its nodes are free before and after that.

    Raises:
        NotReachedError: a pod was neither scheduled nor refused in time.
    """
    stock, *others = _results(site, (_STOCK, *_OTHERS), size)
    report = Report(hear, NAME, site.nodes)
    report.of(stock, refusal_goal_s=None)
    for other in others:
        report.of(other, goals.refusal_s)
        report.beside(other, stock, goals)


def _results(site: Site, schedulers: Sequence[Scheduler], size: Size) -> list[Results]:
    idle = [_warm_up(site, scheduler, size) for scheduler in schedulers]
    turns = [
        [_turn(site, scheduler, size.pods) for scheduler in schedulers]
        for _ in in_time(range(size.rounds), size.rounds_s)
    ]
    gangs = [_turn(site, scheduler, size.gang, together=True) for scheduler in schedulers]
    with site.occupied():
        refusals = [_refusals(site, scheduler, size.refusals) for scheduler in schedulers]
    return [
        Results(scheduler.name, trials, gang, refusals_s, idle_cost)
        for scheduler, trials, gang, refusals_s, idle_cost in zip(
            schedulers, zip(*turns, strict=True), gangs, refusals, idle, strict=True
        )
    ]


def _warm_up(site: Site, scheduler: Scheduler, size: Size) -> Cost:
    """Schedules the first pods, and gives what is used after them."""
    with scheduler.running(site) as own:
        trial.schedule(site, scheduler, own, size.warm_up)
        return trial.idle(site, own, size.idle_s)


def _turn(site: Site, scheduler: Scheduler, pods: int, *, together: bool = False) -> Trial:
    with scheduler.running(site) as own:
        return trial.schedule(site, scheduler, own, pods, together=together)


def _refusals(site: Site, scheduler: Scheduler, number: int) -> tuple[float, ...]:
    with scheduler.running(site):
        trial.refuse(site, scheduler)  # a scheduler that has just started has to learn of all nodes
        return tuple(trial.refuse(site, scheduler) for _ in range(number))
