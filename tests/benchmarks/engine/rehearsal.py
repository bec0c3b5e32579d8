"""A cluster on which plans are carried out at once: who is evicted leaves, and is waiting again."""

from collections.abc import Iterable
from dataclasses import replace

from carina_dra.kube.collector_pause import collector_paused
from carina_dra.resource import Allocation, ResourceClaimStatus
from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Pending, Placed, PodState
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.benchmarks.engine.jobs import Job
from tests.benchmarks.stopwatch import cpu_ms

_MOST_CYCLES = 1_000


class WrongAnswerError(Exception):
    """The engine has not decided what was to be decided, so that the time means nothing."""


class Rehearsal:
    """The engine and its state, with the time that they take."""

    def __init__(self, snapshot: Snapshot) -> None:
        begun = cpu_ms()
        with collector_paused(freeze=True):  # as a process reads its first lists
            self.state = State(snapshot)
            self._engine = Engine(self.state)
        self.load_ms = cpu_ms() - begun
        self.decide_ms = 0.0
        """What all cycles have taken."""
        self.events_ms = 0.0
        """What applying all events has taken."""
        self.cycles = 0
        self.started: set[str] = set()
        """The pods that have started."""
        self.evicted: list[str] = []
        """The pods that were evicted, one after the other."""

    @property
    def total_ms(self) -> float:
        """What cycles and events have taken."""
        return self.decide_ms + self.events_ms

    def forget_times(self) -> None:
        """Begins to count again."""
        self.decide_ms = self.events_ms = 0.0
        self.cycles = 0

    def submit(self, jobs: Iterable[Job]) -> None:
        """Jobs arrive."""
        begun = cpu_ms()
        for job in jobs:
            for claim in job.claims:
                self.state.put_claim(claim)
            self.state.put_group(job.group)
            for pod in job.pods:
                self.state.put_pod(pod)
        self.events_ms += cpu_ms() - begun

    def withdraw(self, jobs: Iterable[Job]) -> None:
        """Jobs are gone, with their pods and claims."""
        begun = cpu_ms()
        for job in jobs:
            for pod in job.pods:
                self.state.remove_pod(pod.key)
            for claim in job.claims:
                self.state.remove_claim(claim.key)
            self.state.remove_group(job.group.key)
        self.events_ms += cpu_ms() - begun

    def decide(self) -> Plan:
        """One cycle."""
        begun = cpu_ms()
        with collector_paused():  # as the controller does
            plan = self._engine.decide()
        self.decide_ms += cpu_ms() - begun
        self.cycles += 1
        self.state.memory = plan.memory
        return plan

    def carry_out(self, plan: Plan) -> None:
        """The events that follow from a plan."""
        begun = cpu_ms()
        for eviction in plan.evictions:
            for claim in self.state.occupancy.pods[eviction.pod].claims:
                self._put_claim(claim, None)
            self._put_pod(eviction.pod, Pending())
            self.evicted.append(eviction.pod)
        for start in plan.starts:
            for claim, allocation in start.allocations:
                self._put_claim(claim, allocation)
            self._put_pod(start.pod, Placed(start.node))
            self.started.add(start.pod)
        self.events_ms += cpu_ms() - begun

    def settle(self) -> Plan:
        """Cycles until nothing is left to be done; the last plan.

        Raises:
            WrongAnswerError: there is always something left.
        """
        for _ in range(_MOST_CYCLES):
            plan = self.decide()
            if plan.is_empty and not plan.is_unfinished:
                return plan
            self.carry_out(plan)
        raise WrongAnswerError(f"there is something to be done after {_MOST_CYCLES} cycles")

    def _put_pod(self, key: str, state: PodState) -> None:
        self.state.put_pod(replace(self.state.occupancy.pods[key], state=state))

    def _put_claim(self, key: str, allocation: Allocation | None) -> None:
        claim = self.state.occupancy.claims[key]
        self.state.put_claim(replace(claim, status=ResourceClaimStatus(allocation)))
