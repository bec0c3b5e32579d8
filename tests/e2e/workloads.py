"""Claims and pods of a namespace, and what can be seen from inside the containers."""

import json
import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from simulation.kubernetes.cluster import Cluster, KubectlError
from simulation.kubernetes.process import wait_for
from tests.e2e.plugin import DRIVER

Object = dict[str, Any]
START_S = 30.0
"""Seconds in which a pod is to run whose claim can be prepared at once."""
RETRY_S = 60.0
"""Seconds in which the kubelet is to have tried again whatever had failed."""
_DEVICE = re.compile(
    r"^CARINA_CLAIM_.*_DEVICE_gpu_(?P<minor>\d+)"
    r"(_monitor|_mig_[a-z0-9_]+|_share_SHARE_[0-9a-f_]+)?$"
)
_THEN = "then\n"
_LIST_GPUS = """sh -c "find /dev -type c -name 'nvidia[0-9]*'; echo then; env" """
_STAYS = "trap 'exit 0' TERM; sleep 3600 & wait"


def request(name: str = "gpu", **exactly: object) -> Object:
    """A request for GPUs: one, by default."""
    return {"name": name, "exactly": {"deviceClassName": DRIVER, **exactly}}


def gpu_config(**fields: object) -> Object:
    """A claim's configuration for the driver."""
    parameters = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "GpuConfig", **fields}
    return {"opaque": {"driver": DRIVER, "parameters": parameters}}


def container(name: str = "main", *claims: str, command: str = _STAYS) -> Object:
    """A container with claims of its pod: `CLAIM`, or `CLAIM/REQUEST` for a part of one."""
    named = [dict(zip(("name", "request"), claim.split("/"), strict=False)) for claim in claims]
    return {
        "name": name,
        "image": "busybox:1",
        "imagePullPolicy": "Never",
        "command": ["sh", "-c", command],
        "resources": {"claims": named},
    }


@dataclass(frozen=True, slots=True)
class Gpu:
    """A GPU as a container sees it: its device node's number, and the UUID of its variable."""

    minor: int
    uuid: str


@dataclass(frozen=True, slots=True)
class Workloads:
    """A namespace of a test's own. Its pods have the labels."""

    cluster: Cluster
    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        """What a kubectl command prints."""
        return self.cluster.kubectl("--namespace", self.namespace, *arguments, stdin=stdin)

    def claim(
        self, name: str, *requests: Object, config: Sequence[Object] = (), template: bool = False
    ) -> None:
        """Makes a claim, or a template of it; for one GPU, by default."""
        self.cluster.apply(self._claim_object(name, requests, config, template=template))

    def pod(self, name: str, claim: str, *containers: Object, **spec: object) -> None:
        """Makes a pod with a claim that exists; one container uses it, by default."""
        claims = [{"name": "gpu", "resourceClaimName": claim}]
        self._pod(name, claims, containers, spec)

    def pod_with_own_claim(self, name: str, *containers: Object, **spec: object) -> None:
        """Makes a pod with a claim from the template `gpu`, which is made too."""
        claims = [{"name": "gpu", "resourceClaimTemplateName": "gpu"}]
        self.cluster.apply(
            self._claim_object("gpu", (), (), template=True),
            self._pod_object(name, claims, containers, spec),
        )

    def pods_of_templates(self, templates: Mapping[str, str]) -> None:
        """Makes pods at once, each with a claim from the template of that name."""
        self.cluster.apply(
            *(
                self._pod_object(
                    name, [{"name": "gpu", "resourceClaimTemplateName": template}], (), {}
                )
                for name, template in templates.items()
            )
        )

    def pod_of_template(
        self, name: str, template: str, *containers: Object, **spec: object
    ) -> Object:
        """Makes a pod with a claim from a template; gives it as it was created."""
        claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
        created: Object = json.loads(
            self.kubectl(
                *("create", "-f", "-", "-o", "json"),
                stdin=json.dumps(self._pod_object(name, claims, containers, spec)),
            )
        )
        return created

    def job_of_template(
        self, name: str, template: str, *containers: Object, **spec: object
    ) -> None:
        """Makes a Job of one pod with a claim from a template."""
        claims = [{"name": "gpu", "resourceClaimTemplateName": template}]
        pod = self._pod_object(name, claims, containers, spec)
        self.cluster.apply(
            {
                "apiVersion": "batch/v1",
                "kind": "Job",
                "metadata": {"namespace": self.namespace, "name": name},
                "spec": {
                    "template": {
                        "metadata": {"labels": pod["metadata"]["labels"]},
                        "spec": pod["spec"],
                    }
                },
            }
        )

    def _pod(
        self,
        name: str,
        claims: Sequence[Object],
        containers: Sequence[Object],
        spec: Mapping[str, object],
    ) -> None:
        self.cluster.apply(self._pod_object(name, claims, containers, spec))

    def _claim_object(
        self, name: str, requests: Sequence[Object], config: Sequence[Object], *, template: bool
    ) -> Object:
        spec: Object = {"devices": {"requests": list(requests) or [request()], "config": config}}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate" if template else "ResourceClaim",
            "metadata": {"namespace": self.namespace, "name": name},
            "spec": {"spec": spec} if template else spec,
        }

    def _pod_object(
        self,
        name: str,
        claims: Sequence[Object],
        containers: Sequence[Object],
        spec: Mapping[str, object],
    ) -> Object:
        pod_spec = {
            "restartPolicy": "Never",
            "resourceClaims": claims,
            "containers": list(containers) or [container("main", "gpu")],
            **spec,
        }
        labels = dict(self.labels)
        metadata = {"namespace": self.namespace, "name": name, "labels": labels}
        return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": pod_spec}

    def listed(self, kinds: str) -> list[Object]:
        """The objects of these kinds, which are separated by commas."""
        found: list[Object] = json.loads(self.kubectl("get", kinds, "-o", "json"))["items"]
        return found

    def get(self, kind: str, name: str) -> Object:
        """An object."""
        found: Object = json.loads(self.kubectl("get", kind, name, "-o", "json"))
        return found

    def wait_running(self, *pods: str, timeout: float = START_S) -> None:
        """Waits until all containers of the pods are ready."""
        names = [f"pod/{pod}" for pod in pods]
        self.kubectl("wait", *names, "--for=condition=Ready", f"--timeout={timeout:.0f}s")

    def wait_succeeded(self, pod: str) -> None:
        """Waits until all containers of the pod have ended well."""
        done = "--for=jsonpath={.status.phase}=Succeeded"
        self.kubectl("wait", f"pod/{pod}", done, f"--timeout={START_S:.0f}s")

    def wait_scheduled(self, pod: str) -> None:
        """Waits until the pod is on its node, and its claim allocated."""
        scheduled = "--for=condition=PodScheduled"
        self.kubectl("wait", f"pod/{pod}", scheduled, f"--timeout={START_S:.0f}s")

    def why_not_scheduled(self, pod: str) -> str | None:
        """Waits for the scheduler's first word on the pod: None, or why it found no place."""
        condition = wait_for(
            f"the scheduler to decide about {pod}",
            lambda: next(
                (
                    each
                    for each in self.get("pod", pod)["status"].get("conditions", ())
                    if each["type"] == "PodScheduled"
                ),
                None,
            ),
        )
        return None if condition["status"] == "True" else str(condition["message"])

    def delete(self, pod: str) -> None:
        """Deletes a pod and waits until it is gone."""
        self.begin_delete(pod)
        self.wait_gone(pod)

    def begin_delete(self, pod: str) -> None:
        """Deletes a pod; it is gone once the kubelet has undone everything."""
        self.kubectl("delete", "pod", pod, "--wait=false")

    def force_delete(self, pod: str) -> None:
        """Takes a pod out of the API at once, whatever the kubelet does."""
        self.kubectl("delete", "pod", pod, "--force", "--grace-period=0", "--wait=true")

    def delete_all(self) -> None:
        """Deletes all pods and waits until they are gone. The Jobs go first, which replace pods."""
        self.kubectl("delete", "jobs,pods", "--all", "--now")

    def wait_gone(self, pod: str, timeout: float = START_S) -> None:
        """Waits until the pod is no more."""
        self.kubectl("wait", f"pod/{pod}", "--for=delete", f"--timeout={timeout:.0f}s")

    def claim_of(self, pod: str) -> Object:
        """The claim that was made from the pod's template."""
        statuses = self.get("pod", pod)["status"]["resourceClaimStatuses"]
        return self.get("resourceclaim", statuses[0]["resourceClaimName"])

    def allocated(self, claim: Object) -> set[str]:
        """The names of the devices that a claim was given."""
        results = claim["status"]["allocation"]["devices"]["results"]
        return {result["device"] for result in results}

    def run(self, pod: str, command: str, container: str = "main") -> str:
        """What a command prints in a running container."""
        return self.kubectl("exec", pod, "-c", container, "--", *shlex.split(command))

    def environment(self, pod: str, container: str = "main") -> dict[str, str]:
        """The environment of a container."""
        return _variables(self.run(pod, "env", container))

    def gpus(self, pod: str, container: str = "main") -> list[Gpu]:
        """The GPUs that a container has, each with one variable; nodes and variables agree."""
        listed, _, environment = self.run(pod, _LIST_GPUS, container).partition(_THEN)
        variables = _variables(environment).items()
        matches = [(_DEVICE.search(name), value) for name, value in variables]
        uuids = {match["minor"]: value for match, value in matches if match}
        assert sorted(listed.split()) == sorted(f"/dev/nvidia{minor}" for minor in uuids)
        return sorted((Gpu(int(minor), uuid) for minor, uuid in uuids.items()), key=_by_minor)

    def wait_event(self, kind: str, name: str, reason: str, timeout: float = START_S) -> str:
        """Waits for an Event on an object, and gives what it says."""
        wanted = f"involvedObject.kind={kind},involvedObject.name={name},reason={reason}"
        return wait_for(
            f"Event {reason} on {kind} {name}",
            lambda: self.kubectl(
                *("get", "events", f"--field-selector={wanted}"),
                *("-o", "jsonpath={.items[*].message}"),
            ),
            timeout=timeout,
            retry_on=(KubectlError,),
        )


def _variables(lines: str) -> dict[str, str]:
    return dict(line.split("=", 1) for line in lines.splitlines())


def _by_minor(gpu: Gpu) -> int:
    return gpu.minor
