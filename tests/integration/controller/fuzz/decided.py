"""Decides on what the hostile tenant writes, without a cluster.

    python -m tests.integration.controller.fuzz.decided --seed 11 --steps 500

It does the part of the admission policies and of kube-controller-manager: gates, claims from
templates, pods of Jobs and ReplicaSets. Nothing that is planned is written. The process may not
have more than `_MEMORY`, and ends with status 1 if work on a group has failed, as for lack of it.
"""

import argparse
import json
import resource
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
)
from carina_dra.kube.body import Body, key_of
from controller.engine.decide.cycle import Engine
from controller.engine.model.snapshot import Snapshot
from controller.names import QUEUES
from controller.observe.mirror import Mirror
from controller.run.subjects import Subject, optional_subjects, subjects
from simulation.demo import queue_gate
from tests.integration.controller.fuzz import world
from tests.integration.controller.fuzz.generator import JOBS, REPLICA_SETS, Create, step
from tests.integration.controller.fuzz.recursion import deep_recursion

_CLASSES: Final = Path("deploy/deviceclass.yaml")
_MEMORY: Final = 2 << 30
"""Bytes of address space; a controller of this world needs a tenth of it."""
_BEGIN: Final = 1_800_000_000.0
_CREATED: Final = "2027-01-15T08:00:00Z"
_BETWEEN: Final = 20
"""Steps between decisions."""
_SECONDS: Final = 5.0
"""Between decisions, on the clock of the controller."""


class Decided:
    """The state of a controller that decides, and never writes."""

    def __init__(self) -> None:
        self._now = _BEGIN
        self._mirror = Mirror(Snapshot(now=self._now))
        self._subjects: dict[ApiResource, Subject[Any]] = {}
        for versions in (
            *((subject,) for subject in subjects(self._mirror)),
            *optional_subjects(self._mirror),
        ):
            for subject in versions:
                self._subjects[subject.resource] = subject
        self._engine = Engine(self._mirror.state)
        self._templates: dict[str, Body] = {}
        self._version = 0

    def put(self, resource: ApiResource, body: Body) -> None:
        """Applies an object; one that the controller cannot read is left out, as by its watch."""
        subject = self._subjects.get(resource)
        if subject is None:
            return
        self._version += 1
        defaults = {
            "name": f"made-{self._version}",
            "uid": f"uid-{self._version}",
            "creationTimestamp": _CREATED,
        }
        version = {"resourceVersion": str(self._version)}
        body = {**body, "metadata": defaults | body["metadata"] | version}
        try:
            value = subject.parse(body)
        except (ValueError, KeyError, TypeError):
            return
        subject.put(key_of(body), value)

    def write(self, resource: ApiResource, body: Body) -> None:
        """Does what follows from an object that the tenant creates."""
        body = json.loads(json.dumps(body))
        if resource == RESOURCE_CLAIM_TEMPLATES:
            self._templates[body["metadata"]["name"]] = body
        elif resource == PODS:
            self._write_pod(body)
        elif resource in (JOBS, REPLICA_SETS):
            self._write_pods(body)
        else:
            self.put(resource, _defaulted(queue_gate.admit(resource, body)))

    def decide(self) -> Mapping[str, str]:
        """Decides once; the groups on which work has failed, and how."""
        self._now += _SECONDS
        self._mirror.refresh(self._now)
        plan = self._engine.decide()
        return {failure.group: failure.traceback for failure in plan.failures}

    def _write_pods(self, owner: Body) -> None:
        spec, template = owner["spec"], owner["spec"]["template"]
        for index in range(spec.get("parallelism", spec.get("replicas", 1))):
            metadata = {
                "name": f"{owner['metadata']['name']}-{index}",
                "namespace": owner["metadata"]["namespace"],
            }
            self._write_pod({**template, "metadata": template["metadata"] | metadata})

    def _write_pod(self, body: Body) -> None:
        metadata = body["metadata"]
        metadata["uid"] = f"uid-{metadata['namespace']}-{metadata['name']}"
        statuses = []
        for entry in body["spec"].get("resourceClaims", ()):
            template = self._templates.get(entry.get("resourceClaimTemplateName"))
            if template is not None:
                claim = _claim_of(body, entry["name"], template)
                statuses.append(
                    {"name": entry["name"], "resourceClaimName": claim["metadata"]["name"]}
                )
                self.put(RESOURCE_CLAIMS, _defaulted(queue_gate.admit(RESOURCE_CLAIMS, claim)))
        body["status"] = {"phase": "Pending", "resourceClaimStatuses": statuses}
        self.put(PODS, queue_gate.admit(PODS, body))


def _claim_of(pod: Body, name: str, template: Body) -> Body:
    metadata = pod["metadata"]
    owner = {"apiVersion": "v1", "kind": "Pod", "controller": True}
    return {
        "metadata": {
            "name": f"{metadata['name']}-{name}",
            "namespace": metadata["namespace"],
            "labels": template["spec"].get("metadata", {}).get("labels", {}),
            "annotations": {"resource.kubernetes.io/pod-claim-name": name},
            "ownerReferences": [owner | {"name": metadata["name"], "uid": metadata["uid"]}],
        },
        "spec": json.loads(json.dumps(template["spec"]["spec"])),
    }


def _defaulted(body: Body) -> Body:
    """Adds what the API server would to the requests of a claim."""
    for request in body["spec"].get("devices", {}).get("requests", ()):
        for asked in (request.get("exactly"), *request.get("firstAvailable", ())):
            if asked is not None and asked.setdefault("allocationMode", "ExactCount") != "All":
                asked.setdefault("count", 1)
    return body


def _world() -> Iterator[tuple[ApiResource, Body]]:
    for node, slices in world.nodes():
        yield NODES, node
        yield from ((RESOURCE_SLICES, body) for body in slices)
    yield from ((DEVICE_CLASSES, body) for body in yaml.safe_load_all(_CLASSES.read_text()))
    yield from ((QUEUES, body) for body in world.queues())
    for allowance in world.QUEUE_ALLOWANCES.values():
        yield from ((NAMESPACES, {"metadata": {"name": name}}) for name in allowance.namespaces)


def run(seed: int, steps: int) -> Mapping[str, str]:
    """Decides again and again while the tenant writes; the groups on which work has failed."""
    decided, failed = Decided(), dict[str, str]()
    for resource_of, body in _world():
        decided.put(resource_of, body)
    for index in range(steps):
        written = step(seed, index, world.TARGETS[index % len(world.TARGETS)])
        if isinstance(written, Create):
            for resource_of, body in written.objects:
                decided.write(resource_of, body)
        if index % _BETWEEN == _BETWEEN - 1:
            failed |= decided.decide()
    return failed


def main() -> int:
    """Returns the exit status."""
    parser = argparse.ArgumentParser(prog="python -m tests.integration.controller.fuzz.decided")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--steps", type=int, default=500)
    chosen = parser.parse_args()
    resource.setrlimit(resource.RLIMIT_AS, (_MEMORY, _MEMORY))
    with deep_recursion():
        failed = run(chosen.seed, chosen.steps)
    for group, why in failed.items():
        print(f"FOUND: work on {group} failed: {why}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
