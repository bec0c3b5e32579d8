"""Stands in for the MutatingAdmissionPolicies of deploy/queue-gate.yaml."""

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import Body
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import DELETE_PROTECTION, GATE


def admit(resource: ApiResource, body: Body) -> Body:
    """Gates a new pod that names a queue; a claim that does gets its finalizer."""
    metadata, spec = body.get("metadata", {}), body.get("spec", {})
    if QUEUE_LABEL not in metadata.get("labels", {}):
        return body
    if resource == PODS and not spec.get("nodeName"):
        gates = _with({"name": GATE}, spec.get("schedulingGates", []))
        return {**body, "spec": {**spec, "schedulingGates": gates}}
    if resource == RESOURCE_CLAIMS:
        finalizers = _with(DELETE_PROTECTION, metadata.get("finalizers", []))
        return {**body, "metadata": {**metadata, "finalizers": finalizers}}
    return body


def _with(item: object, items: list[object]) -> list[object]:
    return items if item in items else [*items, item]
