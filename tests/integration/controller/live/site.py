"""A control plane with Carina installed, hollow nodes with GPUs, and a controller process."""

import json
import signal
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

from carina_dra.kube.api_resource import (
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GATE, GROUP_LABEL, POD_GROUPS, QUEUES
from simulation.kubernetes import process
from simulation.kubernetes.cluster import Cluster, fake_node
from simulation.kubernetes.process import Process
from tests.eventually import eventually

DRIVER: Final = "gpu.carina.dev"
GPU_CLASS: Final = "gpu.carina.dev"
"""The class of whole GPUs in deploy/."""
PLACED_WITHIN: Final = 20.0
"""Seconds within which what can start is bound, on a busy machine."""
_numbers = count(1)


@dataclass(frozen=True, slots=True)
class Site:
    """A cluster with hollow nodes."""

    cluster: Cluster
    client: Client
    """Of an administrator."""

    def add_nodes(self, *names: str, gpus: int = 4, **more: Any) -> None:
        """Adds nodes with whole GPUs."""
        for name in names:
            self.client.create(NODES, _merged(fake_node(name), more))
            self.client.create(RESOURCE_SLICES, gpu_slice(name, gpus))

    def remove_nodes(self, *names: str) -> None:
        for name in names:
            self.client.delete(RESOURCE_SLICES, name)
            self.client.delete(NODES, name)

    def queue(self, name: str, **spec: Any) -> str:
        """Creates a queue; removed with its team's."""
        self.client.create(QUEUES, _object(QUEUES, name, spec=spec))
        return name

    @contextmanager
    def controller(self, name: str = "controller", **settings: object) -> Iterator[Process]:
        """Runs a controller with the permissions that deploy/ gives it."""
        running = self.start_controller(name, **settings)
        try:
            yield running
        finally:
            running.stop()

    def start_controller(self, name: str = "controller", **settings: object) -> Process:
        credentials = self.cluster.service_account_credentials("carina-system", "carina-controller")
        chosen = {
            "kubeconfig": credentials.kubeconfig,
            "identity": name,
            "http_address": "off",
            "log_format": "text",
            "verdict_seconds": 1,
            **settings,
        }
        flags = [f"--{key.replace('_', '-')}={value}" for key, value in chosen.items()]
        code = "from controller.main import main; main()"
        return process.start(self.cluster.state, name, [sys.executable, "-c", code, *flags])


@dataclass(frozen=True, slots=True)
class Team:
    """A namespace with its pods."""

    site: Site
    namespace: str
    queue: str
    templates: set[str] = field(default_factory=set)

    @property
    def client(self) -> Client:
        return self.site.client

    def template(self, gpus: int = 1, *, labelled: bool = True, **request: Any) -> str:
        """A template for claims of so many GPUs; its name."""
        name = f"gpus-{gpus}" if not request else f"gpus-{gpus}-{next(_numbers)}"
        if name in self.templates:
            return name
        self.templates.add(name)
        exactly = {"deviceClassName": GPU_CLASS, "count": gpus, **request}
        labels = {QUEUE_LABEL: self.queue} if labelled else {}
        self.client.create(
            RESOURCE_CLAIM_TEMPLATES,
            _object(
                RESOURCE_CLAIM_TEMPLATES,
                name,
                self.namespace,
                spec={
                    "metadata": {"labels": labels},
                    "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
                },
            ),
        )
        return name

    def pod_spec(self, gpus: int = 1, *, cpu: str = "100m", **more: Any) -> Body:
        claims: list[Body] = []
        if gpus:
            claims = [{"name": "gpus", "resourceClaimTemplateName": self.template(gpus)}]
        resources: Body = {"requests": {"cpu": cpu}}
        if claims:
            resources["claims"] = [{"name": "gpus"}]
        return {
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": claims,
            "containers": [{"name": "main", "image": "none", "resources": resources}],
            **more,
        }

    def labels(self, group: str | None = None) -> dict[str, str]:
        return {QUEUE_LABEL: self.queue} | ({} if group is None else {GROUP_LABEL: group})

    def pod(self, name: str, gpus: int = 1, *, group: str | None = None, **spec: Any) -> None:
        """Creates a pod by itself."""
        body = _object(PODS, name, self.namespace, spec=self.pod_spec(gpus, **spec))
        body["metadata"]["labels"] = self.labels(group)
        self.client.create(PODS, body)

    def gang(
        self, name: str, pods: int, gpus: int = 1, *, least: int | None = None, **spec: Any
    ) -> None:
        """Creates a PodGroup with pods, which start together."""
        self.group(name, minCount=pods if least is None else least)
        for index in range(pods):
            self.pod(f"{name}-{index}", gpus, group=name, **spec)

    def group(self, name: str, **spec: Any) -> None:
        self.client.create(POD_GROUPS, _object(POD_GROUPS, name, self.namespace, spec=spec))

    def job(
        self,
        name: str,
        pods: int,
        gpus: int = 1,
        *,
        annotations: Mapping[str, str] | None = None,
        **spec: Any,
    ) -> None:
        """Creates a Job of so many pods at the same time."""
        template = {
            "metadata": {"labels": self.labels(), "annotations": dict(annotations or {})},
            "spec": {"restartPolicy": "Never", **self.pod_spec(gpus, **spec)},
        }
        body = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": name, "namespace": self.namespace},
            "spec": {
                "parallelism": pods,
                "completions": pods,
                "backoffLimit": 1000,
                "template": template,
            },
        }
        self.site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))

    # What there is.

    def pods(self) -> dict[str, Body]:
        """The pods by name."""
        return {
            body["metadata"]["name"]: body
            for body in self.client.list(PODS, Selection(self.namespace)).items
        }

    def claims(self) -> dict[str, Body]:
        return {
            body["metadata"]["name"]: body
            for body in self.client.list(RESOURCE_CLAIMS, Selection(self.namespace)).items
        }

    def bound(self, prefix: str = "") -> dict[str, str]:
        """The nodes of pods that have one and are not being deleted."""
        return {
            name: body["spec"]["nodeName"]
            for name, body in self.pods().items()
            if name.startswith(prefix)
            and body["spec"].get("nodeName")
            and not body["metadata"].get("deletionTimestamp")
        }

    def gated(self, prefix: str = "") -> set[str]:
        return {
            name
            for name, body in self.pods().items()
            if name.startswith(prefix)
            and any(each["name"] == GATE for each in body["spec"].get("schedulingGates") or ())
        }

    def allocated(self) -> list[tuple[str, str]]:
        """The devices that claims have, by pool and name; one that two have occurs twice."""
        return sorted(
            (result["pool"], result["device"])
            for claim in self.claims().values()
            for result in ((claim.get("status") or {}).get("allocation") or {})
            .get("devices", {})
            .get("results", ())
        )

    def condition(self, group: str, kind: str = "Admitted") -> Body:
        """A condition of a PodGroup; empty if there is none."""
        status = self.client.get(POD_GROUPS, group, namespace=self.namespace).get("status") or {}
        found = [each for each in status.get("conditions") or () if each["type"] == kind]
        return found[0] if found else {}

    def await_bound(
        self, number: int, prefix: str = "", within: float = PLACED_WITHIN
    ) -> dict[str, str]:
        """Waits until so many pods are bound."""
        return (
            eventually(
                lambda: found if len(found := self.bound(prefix)) == number else None, within=within
            )
            or {}
        )

    def await_condition(
        self, group: str, matches: Callable[[Body], bool], kind: str = "Admitted"
    ) -> Body:
        """Waits until a condition of a PodGroup is as it is expected."""
        found = eventually(
            lambda: found if matches(found := self.condition(group, kind)) else None,
            within=PLACED_WITHIN,
        )
        return found or {}

    def await_event(self, reason: str) -> None:
        """Waits until there is an Event with a reason in the namespace."""
        wanted = ("events", "--namespace", self.namespace, f"--field-selector=reason={reason}")
        eventually(
            lambda: self.site.cluster.kubectl("get", *wanted, "-o", "name"), within=PLACED_WITHIN
        )

    def delete_pod(self, name: str) -> None:
        self.client.delete(PODS, name, namespace=self.namespace, grace_period_seconds=0)


def gpu_slice(node: str, gpus: int, **more: Any) -> Body:
    """A slice with a node's whole GPUs."""
    devices = [
        {
            "name": f"gpu-{index}",
            "attributes": {
                "type": {"string": "gpu"},
                "productName": {"string": "NVIDIA H100"},
                "uuid": {"string": f"GPU-{node}-{index}"},
            },
            "capacity": {"memory": {"value": "80Gi"}},
        }
        for index in range(gpus)
    ]
    pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices, **more}
    return _object(RESOURCE_SLICES, node, spec=spec)


def kill(running: Process) -> None:
    """Kills a process as a power cut would."""
    running.stop(signal.SIGKILL)


def _object(resource: ApiResource, name: str, namespace: str | None = None, **more: Any) -> Body:
    metadata = {"name": name} | ({} if namespace is None else {"namespace": namespace})
    return {
        "apiVersion": resource.api_version,
        "kind": resource.kind,
        "metadata": metadata,
        **more,
    }


def _merged(body: Mapping[str, Any], more: Mapping[str, Any]) -> Body:
    merged = dict(body)
    for name, value in more.items():
        known = merged.get(name)
        merged[name] = _merged(known, value) if isinstance(known, dict) else value
    return merged
