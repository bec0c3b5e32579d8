"""A team with a namespace and a queue, as it uses the API."""

from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from carina_dra.kube.api_resource import (
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ApiResource,
    Scope,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import NotFound
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GROUP_LABEL, POD_GROUPS, QUEUES
from simulation.demo.expected_devices import allocated, claim_names

_GPU_CLASS: Final = "gpu.carina.dev"
_RUN_LABEL: Final = "run"
"""The label of pods with the name under which they were submitted."""


@dataclass(frozen=True, slots=True)
class Team:
    """A team; its namespace and its queue have its name."""

    client: Client
    name: str

    def create_queue(self, quota: int) -> None:
        """Creates the queue, with a guaranteed number of GPUs."""
        resources = [{"gpus": {}, "quota": quota}]
        self._create(
            QUEUES, self.name, {"namespaces": {"names": [self.name]}, "resources": resources}
        )

    def submit(self, run: str, pods: int, gpus: int) -> None:
        """Creates pods that start one by one, each with a number of GPUs."""
        self._submit(run, pods, gpus, {})

    def submit_gang(self, run: str, pods: int, gpus: int) -> None:
        """Creates a PodGroup with pods that start together, each with a number of GPUs."""
        self._create(POD_GROUPS, run, {"minCount": pods})
        self._submit(run, pods, gpus, {GROUP_LABEL: run})

    def end(self, run: str) -> None:
        """Deletes the pods of a run."""
        for pod in self.pods(run):
            self._delete(PODS, pod)

    def leave(self) -> None:
        """Deletes all that the team has submitted, and its pods."""
        for resource in (PODS, POD_GROUPS, RESOURCE_CLAIM_TEMPLATES):
            for body in self._list(resource):
                self._delete(resource, body)

    def dissolve(self) -> None:
        """Deletes the queue and the namespace."""
        self.client.delete(QUEUES, self.name)
        self.client.delete(NAMESPACES, self.name)

    # What the team has.

    @property
    def is_gone(self) -> bool:
        """Whether no pod and no claim is left."""
        return not self._list(PODS) and not self._list(RESOURCE_CLAIMS)

    @property
    def gpus(self) -> int:
        """The number of GPUs that are allocated to its claims."""
        return len(allocated(filter(_is_allocated, self._list(RESOURCE_CLAIMS))))

    def pods(self, run: str) -> list[Body]:
        """The pods of a run."""
        return self._list(PODS, labels=f"{_RUN_LABEL}={run}")

    def running(self, run: str) -> dict[str, str]:
        """By name of the pods of a run that run: the node and the GPUs."""
        claims = {claim["metadata"]["name"]: claim for claim in self._list(RESOURCE_CLAIMS)}
        return {
            pod["metadata"]["name"]: f"{pod['spec']['nodeName']}: {', '.join(devices)}"
            for pod in self.pods(run)
            if pod.get("status", {}).get("phase") == "Running"
            and "deletionTimestamp" not in pod["metadata"]
            and (devices := _devices(pod, claims))
        }

    def refusal(self, gang: str, reason: str) -> str | None:
        """The message of why a gang is not admitted; None unless that is for this reason."""
        status = self.client.get(POD_GROUPS, gang, namespace=self.name).get("status", {})
        for condition in status.get("conditions", ()):
            if (condition["type"], condition["status"]) == ("Admitted", "False"):
                message: str = condition["message"]
                return message if condition["reason"] == reason else None
        return None

    def _submit(self, run: str, pods: int, gpus: int, labels: dict[str, str]) -> None:
        request = {"name": "gpus", "exactly": {"deviceClassName": _GPU_CLASS, "count": gpus}}
        template = {
            "metadata": {"labels": {QUEUE_LABEL: self.name}},
            "spec": {"devices": {"requests": [request]}},
        }
        self._create(RESOURCE_CLAIM_TEMPLATES, run, template)
        container = {
            "name": "main",
            "image": "busybox:1",
            "imagePullPolicy": "IfNotPresent",
            "command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"],
            "resources": {"claims": [{"name": "gpus"}]},
        }
        spec = {
            "restartPolicy": "Never",
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": run}],
            "containers": [container],
        }
        for index in range(pods):
            own = {QUEUE_LABEL: self.name, _RUN_LABEL: run, **labels}
            self._create(PODS, f"{run}-{index}", spec, labels=own)

    def _create(self, resource: ApiResource, name: str, spec: Body, **metadata: Any) -> None:
        metadata["name"] = name
        if resource.scope is Scope.NAMESPACED:
            metadata["namespace"] = self.name
        kind = {"apiVersion": resource.api_version, "kind": resource.kind}
        self.client.create(resource, {**kind, "metadata": metadata, "spec": spec})

    def _list(self, resource: ApiResource, *, labels: str = "") -> list[Body]:
        return self.client.list(resource, Selection(self.name, labels)).items

    def _delete(self, resource: ApiResource, body: Body) -> None:
        with suppress(NotFound):
            self.client.delete(resource, body["metadata"]["name"], namespace=self.name)


def _is_allocated(claim: Body) -> bool:
    return bool(claim.get("status", {}).get("allocation"))


def _devices(pod: Body, claims: dict[str, Body]) -> list[str]:
    """The devices of a pod, if its claims are still there."""
    own = [claims[name] for name in claim_names(pod) if name in claims]
    return [device for _, device in allocated(filter(_is_allocated, own))]
