"""Has the stand-ins do what every pod needs of them: claims, a node, its start and its end."""

from collections.abc import Mapping

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from simulation.demo.claim_controller import make_claims, release_claims
from simulation.demo.kubelet import Kubelet
from simulation.demo.scheduler import ScheduledPod, is_gated, schedule


class StandIns:
    """The stand-ins for kube-scheduler, the claim controllers and the kubelets, by node."""

    def __init__(self, client: Client, kubelets: Mapping[str, Kubelet]) -> None:
        self._client = client
        self._kubelets = kubelets
        self._running: dict[str, ScheduledPod] = {}
        """By UID."""

    def attend(self) -> None:
        """Does once what there is to do for the pods of the API.

        Raises:
            DemoError: a pod cannot be scheduled or started.
        """
        for pod in self._client.list(PODS).items:
            metadata = pod["metadata"]
            if "deletionTimestamp" in metadata:
                self._end(pod)
            elif is_gated(pod):
                make_claims(self._client, pod)
            elif metadata["uid"] not in self._running:
                scheduled = schedule(self._client, pod)
                self._running[metadata["uid"]] = scheduled
                self._kubelets[scheduled.node].start(scheduled)

    def _end(self, pod: Body) -> None:
        scheduled = self._running.pop(pod["metadata"]["uid"])
        self._kubelets[scheduled.node].stop(pod)
        release_claims(self._client, pod, scheduled.claims)
