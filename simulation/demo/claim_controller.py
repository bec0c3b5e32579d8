"""Stands in for the controllers that create a pod's claims from templates and delete them.

Generated claims are named as kube-controller-manager names them: pod, claim, random suffix.
"""

import contextlib

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, JsonPatch, MergePatch
from carina_dra.kube.errors import NotFound

_FINALIZER = "resource.kubernetes.io/delete-protection"


def make_claims(client: Client, pod: Body) -> list[str]:
    """Creates the claims of the pod's templates and records them in its status.

    Gives the names of all claims of the pod. Those that its status records are not created again.
    """
    metadata = pod["metadata"]
    recorded = pod.get("status", {}).get("resourceClaimStatuses", ())
    generated = {entry["name"]: entry["resourceClaimName"] for entry in recorded}
    statuses = []
    names = []
    for entry in pod["spec"].get("resourceClaims", ()):
        if "resourceClaimName" in entry:
            names.append(entry["resourceClaimName"])
            continue
        if entry["name"] in generated:
            names.append(generated[entry["name"]])
            continue
        template = client.get(
            RESOURCE_CLAIM_TEMPLATES,
            entry["resourceClaimTemplateName"],
            namespace=metadata["namespace"],
        )
        claim = {
            "metadata": {
                "generateName": f"{metadata['name']}-{entry['name']}-",
                "namespace": metadata["namespace"],
                "labels": template["spec"].get("metadata", {}).get("labels", {}),
                "annotations": {"resource.kubernetes.io/pod-claim-name": entry["name"]},
                "ownerReferences": [owned_by(pod)],
            },
            "spec": template["spec"]["spec"],
        }
        name = client.create(RESOURCE_CLAIMS, claim)["metadata"]["name"]
        statuses.append({"name": entry["name"], "resourceClaimName": name})
        names.append(name)
    if statuses:
        client.patch(
            PODS,
            metadata["name"],
            MergePatch({"status": {"resourceClaimStatuses": [*recorded, *statuses]}}),
            namespace=metadata["namespace"],
            subresource="status",
        )
    return names


def owned_by(pod: Body) -> Body:
    """The owner reference with which an object is deleted with the pod."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def release_claims(client: Client, pod: Body, names: list[str]) -> None:
    """Removes an ended pod's reservations, and the allocations that no pod uses any more.

    Claims that were generated for the pod are deleted.
    """
    namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
    for name in names:
        claim = client.get(RESOURCE_CLAIMS, name, namespace=namespace)
        reserved = claim.get("status", {}).get("reservedFor", ())
        left = [consumer for consumer in reserved if consumer["uid"] != uid]
        status: Body = {"reservedFor": left or None}
        if not left:
            status["allocation"] = None
        client.patch(
            RESOURCE_CLAIMS,
            name,
            MergePatch({"status": status}),
            namespace=namespace,
            subresource="status",
        )
        if not left:
            _unprotect(client, claim)
        if owned_by(pod) in claim["metadata"].get("ownerReferences", ()):
            with contextlib.suppress(NotFound):  # a garbage collector may be faster
                client.delete(RESOURCE_CLAIMS, name, namespace=namespace)


def protect(client: Client, claim: Body) -> None:
    """Adds the finalizer that keeps an allocated claim while pods use it."""
    metadata = claim["metadata"]
    if _FINALIZER in metadata.get("finalizers", ()):
        return
    finalizers = [*metadata.get("finalizers", ()), _FINALIZER]
    client.patch(
        RESOURCE_CLAIMS,
        metadata["name"],
        MergePatch({"metadata": {"finalizers": finalizers}}),
        namespace=metadata["namespace"],
    )


def _unprotect(client: Client, claim: Body) -> None:
    """Removes the finalizer that `protect` adds."""
    finalizers = claim["metadata"].get("finalizers", [])
    if _FINALIZER not in finalizers:
        return
    path = f"/metadata/finalizers/{finalizers.index(_FINALIZER)}"
    client.patch(
        RESOURCE_CLAIMS,
        claim["metadata"]["name"],
        JsonPatch([{"op": "remove", "path": path}]),
        namespace=claim["metadata"]["namespace"],
    )
