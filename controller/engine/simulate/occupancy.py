"""Which pods run where, and which GPUs their claims hold."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from typing import Final

from carina_dra.resource import Allocation, ResourceClaim
from controller.engine.model.pod import Pod
from controller.engine.simulate.gpus import SimulatedGpus
from controller.engine.simulate.record import PodOutcome, PodRun

_UNIT: Final = 10**6
"""GPUs are summed in millionths, so that sums are exact."""


@dataclass(slots=True)
class _Held:
    """What a claim has, which is counted once for all pods that refer to it."""

    queue: str
    units: int
    pods: set[str]


class SimulatedOccupancy:
    """The pods that run, or are being evicted, with what their claims have."""

    def __init__(self, gpus: SimulatedGpus) -> None:
        self._gpus = gpus
        self._runs: dict[str, PodRun] = {}
        self._held: dict[str, _Held] = {}
        self._in_use: Counter[str] = Counter()

    def in_use(self, queue: str) -> float:
        """How many GPUs the jobs of a queue hold."""
        return self._in_use[queue] / _UNIT

    def run_of(self, pod: str) -> PodRun | None:
        """Where a pod runs."""
        return self._runs.get(pod)

    def hold(
        self, pod: Pod, node: str, queue: str, claims: Mapping[str, ResourceClaim], now: float
    ) -> None:
        """A pod runs on a node. Its claims, by key, have what they get there."""
        allocations = []
        for key in pod.claims:
            allocation = claims[key].status.allocation if key in claims else None
            if allocation is not None:
                allocations.append(allocation)
                self._hold_claim(key, pod.key, queue, allocation)
        gpus = sum(map(self._gpus.part, allocations), Fraction(0))
        devices = tuple(_devices_of(allocations))
        self._runs[pod.key] = PodRun(pod.key, node, devices, float(gpus), now)

    def release(
        self, pod: Pod, outcome: PodOutcome, now: float
    ) -> tuple[PodRun, tuple[str, ...]] | None:
        """A pod is gone: where it was, and the claims whose devices nobody holds any more.

        None if it did not run.
        """
        run = self._runs.pop(pod.key, None)
        if run is None:
            return None
        freed = tuple(key for key in pod.claims if self._give_up(key, pod.key))
        return replace(run, ended=now, outcome=outcome), freed

    def _hold_claim(self, key: str, pod: str, queue: str, allocation: Allocation) -> None:
        held = self._held.get(key)
        if held is None:
            units = round(self._gpus.part(allocation) * _UNIT)
            held = self._held[key] = _Held(queue, units, set())
            self._in_use[queue] += units
        held.pods.add(pod)

    def _give_up(self, key: str, pod: str) -> bool:
        held = self._held.get(key)
        if held is None:
            return False
        held.pods.discard(pod)
        if held.pods:
            return False
        self._in_use[held.queue] -= held.units
        del self._held[key]
        return True


def _devices_of(allocations: Iterable[Allocation]) -> Iterator[str]:
    for allocation in allocations:
        for result in allocation.devices.results:
            yield f"{result.pool}/{result.device}"
