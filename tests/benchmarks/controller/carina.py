"""The controller as a scheduler that is measured: a process with the permissions of deploy/."""

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from carina_dra.kube.api_resource import ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import MergePatch
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GROUP, GROUP_LABEL, POD_GROUPS, QUEUES
from simulation.kubernetes import process
from simulation.kubernetes.process import Process, wait_for
from tests.benchmarks.controller.scheduler import Gang
from tests.benchmarks.controller.site import Site
from tests.benchmarks.fleet import DRIVER

_NAMESPACE: Final = "carina-system"
_ACCOUNT: Final = "carina-controller"
_FOR_ALL: Final[dict[str, object]] = {"namespaces": {"selector": {}}}
"""The spec of a queue that all namespaces may use."""
_QUEUE: Final = "measured"
_START_S: Final = 120.0
_REFUSED: Final = "NoRoom"
COMMAND: Final = (sys.executable, "-c", "from controller.main import main; main()")


class CarinaController:
    """Carina's controller, with one queue. kube-scheduler binds what it has started."""

    name: Final = "carina-controller"
    refusing: Final[ApiResource] = POD_GROUPS

    def says_no(self, body: Body) -> bool:
        """Whether the condition Admitted of a PodGroup says that there is no room."""
        return any(
            condition["type"] == "Admitted" and condition["reason"] == _REFUSED
            for condition in body.get("status", {}).get("conditions", ())
        )

    @contextmanager
    def running(self, site: Site) -> Iterator[Sequence[Process]]:
        """Runs the controller until the context ends."""
        credentials = site.cluster.service_account_credentials(_NAMESPACE, _ACCOUNT)
        controller = process.start(
            site.cluster.state,
            self.name,
            [
                *COMMAND,
                f"--identity={self.name}",
                f"--kubeconfig={credentials.kubeconfig}",
                f"--driver-name={DRIVER}",
                "--http-address=off",
                # It is held while pods are created, and leads nevertheless.
                "--lease-seconds=3600",
                "--renew-seconds=1800",
                "--log-format=text",
            ],
            {"PYTHONOPTIMIZE": "2"},  # as in deploy/
        )
        try:
            site.client.create(QUEUES, _object("Queue", {"name": _QUEUE}, _FOR_ALL))
            wait_for(
                "the controller to take work",
                lambda: _takes_work(site.client.get(QUEUES, _QUEUE)),
                timeout=_START_S,
                alive=(controller,),
            )
            yield (controller,)
            controller.check()
        finally:
            controller.stop()
            free = MergePatch({"metadata": {"finalizers": None}})
            site.client.patch(QUEUES, _QUEUE, free)
            site.client.delete(QUEUES, _QUEUE)

    def decider(self, site: Site, own: Sequence[Process]) -> Process:
        """The controller."""
        (controller,) = own
        return controller

    def labels(self, gang: Gang | None) -> Mapping[str, str]:
        """The queue, and the gang."""
        of_gang = {} if gang is None else {GROUP_LABEL: gang.name}
        return {QUEUE_LABEL: _QUEUE, **of_gang}

    def create(self, site: Site, gang: Gang) -> None:
        """Creates the PodGroup."""
        metadata = {"namespace": gang.namespace, "name": gang.name}
        site.client.create(POD_GROUPS, _object("PodGroup", metadata, {"minCount": gang.pods}))


def _object(kind: str, metadata: Mapping[str, str], spec: Mapping[str, object]) -> dict[str, Any]:
    return {
        "apiVersion": f"{GROUP}/v1alpha1",
        "kind": kind,
        "metadata": dict(metadata),
        "spec": dict(spec),
    }


def _takes_work(queue: Body) -> bool:
    return bool(queue.get("status", {}).get("conditions"))
