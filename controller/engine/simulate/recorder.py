"""Writes down what happens, while it happens."""

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from controller.engine.decide.nodes.stranded import StrandedGpus
from controller.engine.model.plan import Action, Eviction, Start
from controller.engine.model.resource import describe
from controller.engine.simulate.gpus import SimulatedGpus
from controller.engine.simulate.occupancy import SimulatedOccupancy
from controller.engine.simulate.record import Happening, PodsEvicted, Sample, Started
from controller.engine.state.state import State


class _Cause(NamedTuple):
    """What evictions have in common that are one happening."""

    job: str
    action: Action
    favoured: str
    moves: bool
    overran: bool


class Recorder:
    """The happenings and samples of a simulation."""

    def __init__(self, state: State, gpus: SimulatedGpus, occupancy: SimulatedOccupancy) -> None:
        self._state = state
        self._gpus = gpus
        self._occupancy = occupancy
        self._stranded = StrandedGpus(state)
        self.queues = tuple(
            sorted(
                name for name in state.occupancy.tree.queues if state.occupancy.tree.is_leaf(name)
            )
        )
        """Those that take work."""
        self.happenings: list[Happening] = []
        self.samples: list[Sample] = []

    def add(self, happening: Happening) -> None:
        """Something happens."""
        self.happenings.append(happening)

    def add_starts(self, now: float, starts: Iterable[Start]) -> None:
        """Pods start: one happening a job."""
        nodes: dict[str, Counter[str]] = {}
        for start in starts:
            nodes.setdefault(self._job_of(start.pod), Counter())[start.node] += 1
        for job, of_job in nodes.items():
            self.add(Started(now, job, of_job))

    def add_evictions(self, now: float, evictions: Iterable[Eviction]) -> None:
        """Pods are evicted: one happening a job and reason."""
        nodes: dict[_Cause, Counter[str]] = {}
        for one in evictions:
            job = self._job_of(one.pod)
            cause = _Cause(job, one.action, one.group, one.moves, one.overran)
            nodes.setdefault(cause, Counter())[one.node] += 1
        for cause, of_job in nodes.items():
            self.add(PodsEvicted(now, nodes=of_job, **cause._asdict()))

    def sample(
        self,
        now: float,
        waiting: Mapping[str, int],
        fair_shares: Mapping[str, Mapping[str, int]],
    ) -> None:
        """Takes a sample, if it differs from the last one; the last one of a time counts.

        waiting: how many jobs of each queue have not what they need to run.
        """
        resources = [describe(resource) for resource in self._state.occupancy.tree.resources]
        allocated = self._state.occupancy.accounts.allocated
        sample = Sample(
            at=now,
            gpus=self._gpus.total,
            in_use={name: self._occupancy.in_use(name) for name in self.queues},
            waiting={name: waiting.get(name, 0) for name in self.queues},
            allocated={
                name: dict(zip(resources, allocated[name], strict=True)) for name in self.queues
            },
            fair_shares=fair_shares,
            stranded=self._stranded.by_lack(),
        )
        if self.samples and self.samples[-1].at == now:
            self.samples.pop()
        if not self.samples or not self.samples[-1].is_like(sample):
            self.samples.append(sample)

    def _job_of(self, pod: str) -> str:
        return self._state.occupancy.pods[pod].group or ""
