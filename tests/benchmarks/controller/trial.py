"""One try of a scheduler: pods are created, and get nodes or a "no"."""

import itertools
import signal
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.body import Body
from simulation.kubernetes.process import Process
from tests.benchmarks.controller import cost, load
from tests.benchmarks.controller.cost import Cost, Meter
from tests.benchmarks.controller.scheduler import Gang, Scheduler
from tests.benchmarks.controller.sightings import sightings
from tests.benchmarks.controller.site import Site

_LIMIT_S: Final = 600.0
_GANG: Final = "gang"
_numbers = itertools.count()


@dataclass(frozen=True, slots=True)
class Trial:
    """Pods that were scheduled, and what that took."""

    pods: int
    """The number of pods."""
    binding_s: float
    """Seconds from the first pod that was bound to the last."""
    whole_s: float
    """Seconds from the moment at which the scheduler goes on until the last was bound."""
    cost: Cost
    memory_mib: Mapping[str, float]
    """The resident memory at the end, by the name of the process."""

    @property
    def binding_ms(self) -> float:
        """Milliseconds from one bound pod to the next."""
        return self.binding_s * 1000 / (self.pods - 1)

    @property
    def requests(self) -> float:
        """Requests a pod."""
        return sum(self.cost.requests.values()) / self.pods

    def processor_ms(self, *names: str) -> float:
        """Processor time of these processes a pod, in milliseconds."""
        return sum(self.cost.processor_s[name] for name in names) * 1000 / self.pods


def schedule(
    site: Site, scheduler: Scheduler, own: Sequence[Process], pods: int, *, together: bool = False
) -> Trial:
    """Schedules pods, and removes them afterwards.

    The scheduler is held until all pods and claims exist, so that their creation, on the same
    processors, does not limit it.

    own: the processes that the scheduler has beside the control plane.
    together: whether the pods are a gang.

    Raises:
        NotReachedError: some are not bound after 10 minutes.
    """
    namespace = f"trial-{next(_numbers)}"
    gang = Gang(namespace, _GANG, pods) if together else None
    labels = scheduler.labels(gang)
    load.prepare(site, namespace, labels)
    processes = (*site.cluster.control_plane.processes, *own)
    with sightings(site.client, PODS, namespace, _is_bound) as bound:
        meter = Meter(site.cluster, processes)
        with _held(scheduler.decider(site, own)):
            if gang is not None:
                scheduler.create(site, gang)
            load.create_pods(site, namespace, pods, labels)
            load.await_claims(site, namespace, pods)
        begun = time.perf_counter()
        times = bound.wait(pods, timeout=_LIMIT_S)
        used = meter.stop()
    memory = {process.name: cost.resident_mib(process) for process in processes}
    load.remove(site, namespace)
    return Trial(pods, times[-1] - times[0], times[-1] - begun, used, memory)


def idle(site: Site, own: Sequence[Process], seconds: float) -> Cost:
    """What is used while nothing happens for this time."""
    processes = (*site.cluster.control_plane.processes, *own)
    meter = Meter(site.cluster, processes)
    time.sleep(seconds)
    return meter.stop()


def refuse(site: Site, scheduler: Scheduler) -> float:
    """Creates a pod that has no room; gives the seconds until the "no" is seen.

    Raises:
        NotReachedError: there is none after 10 minutes.
    """
    namespace = f"refused-{next(_numbers)}"
    gang = Gang(namespace, _GANG, 1)
    labels = scheduler.labels(gang)
    load.prepare(site, namespace, labels)
    with sightings(site.client, scheduler.refusing, namespace, scheduler.says_no) as refused:
        begun = time.perf_counter()
        scheduler.create(site, gang)
        load.create_pods(site, namespace, 1, labels)
        (seen,) = refused.wait(1, timeout=_LIMIT_S)
    load.remove(site, namespace)
    return seen - begun


@contextmanager
def _held(process: Process) -> Iterator[None]:
    process.popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.popen.send_signal(signal.SIGCONT)


def _is_bound(pod: Body) -> bool:
    return bool(pod["spec"].get("nodeName"))
