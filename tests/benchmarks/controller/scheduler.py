"""What is measured: who decides about the devices and nodes of pods."""

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Final, Protocol

from carina_dra.kube.api_resource import PODS, ApiResource
from carina_dra.kube.body import Body
from simulation.kubernetes.process import Process
from tests.benchmarks.controller.site import Site

_NO: Final = "cannot allocate all claims"


@dataclass(frozen=True, slots=True)
class Gang:
    """Pods that start together, where the scheduler knows gangs."""

    namespace: str
    name: str
    pods: int
    """The number of pods."""


class Scheduler(Protocol):
    """A way to schedule pods whose claims come from a template."""

    @property
    def name(self) -> str:
        """The name of the process that chooses devices."""

    @property
    def refusing(self) -> ApiResource:
        """The resource whose objects say that there is no room."""

    def says_no(self, body: Body) -> bool:
        """Whether an object of `refusing` says that there is no room."""

    def running(self, site: Site) -> AbstractContextManager[Sequence[Process]]:
        """Runs the processes that the control plane does not have anyway; they are ready."""

    def decider(self, site: Site, own: Sequence[Process]) -> Process:
        """The process that chooses devices; `own` are those of `running`."""

    def labels(self, gang: Gang | None) -> Mapping[str, str]:
        """The labels of a pod and of its claim."""

    def create(self, site: Site, gang: Gang) -> None:
        """Creates what a gang has beside its pods."""


class KubeScheduler:
    """kube-scheduler as it is, which the control plane runs. It takes the pods one by one."""

    name: Final = "kube-scheduler"
    refusing: Final = PODS

    def says_no(self, body: Body) -> bool:
        """Whether the condition PodScheduled of a pod says that its claims cannot be allocated."""
        return any(
            condition["type"] == "PodScheduled" and _NO in condition.get("message", "")
            for condition in body.get("status", {}).get("conditions", ())
        )

    def running(self, site: Site) -> AbstractContextManager[Sequence[Process]]:
        """It runs already."""
        return nullcontext(())

    def decider(self, site: Site, own: Sequence[Process]) -> Process:
        """That of the control plane."""
        (scheduler,) = (
            one for one in site.cluster.control_plane.processes if one.name == self.name
        )
        return scheduler

    def labels(self, gang: Gang | None) -> Mapping[str, str]:
        """No labels."""
        return {}

    def create(self, site: Site, gang: Gang) -> None:
        """Nothing."""
