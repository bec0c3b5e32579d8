"""In the role of the controllers that make a pod's claims from templates, and remove them.

The names of generated claims are as kube-controller-manager makes them: pod, claim, random.
"""

import contextlib

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, JsonPatch, MergePatch
from carina_dra.kube.errors import NotFound

_FINALIZER = "resource.kubernetes.io/delete-protection"


def make_claims(client: Client, pod: Body) -> list[str]:
    """Makes the claims of the pod's templates, and says so in its status; gives all their names."""
    metadata = pod["metadata"]
    statuses = []
    names = []
    for each in pod["spec"].get("resourceClaims", ()):
        if "resourceClaimName" in each:
            names.append(each["resourceClaimName"])
            continue
        template = client.get(
            RESOURCE_CLAIM_TEMPLATES,
            each["resourceClaimTemplateName"],
            namespace=metadata["namespace"],
        )
        claim = {
            "metadata": {
                "generateName": f"{metadata['name']}-{each['name']}-",
                "namespace": metadata["namespace"],
                "annotations": {"resource.kubernetes.io/pod-claim-name": each["name"]},
                "ownerReferences": [owned_by(pod)],
            },
            "spec": template["spec"]["spec"],
        }
        name = client.create(RESOURCE_CLAIMS, claim)["metadata"]["name"]
        statuses.append({"name": each["name"], "resourceClaimName": name})
        names.append(name)
    if statuses:
        client.patch(
            PODS,
            metadata["name"],
            MergePatch({"status": {"resourceClaimStatuses": statuses}}),
            namespace=metadata["namespace"],
            subresource="status",
        )
    return names


def owned_by(pod: Body) -> Body:
    """What makes an object go with the pod."""
    metadata = pod["metadata"]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
    }


def release_claims(client: Client, pod: Body, names: list[str]) -> None:
    """After a pod: takes its reservations back, and allocations that nobody uses any more.

    Claims that were made for the pod are deleted.
    """
    namespace, uid = pod["metadata"]["namespace"], pod["metadata"]["uid"]
    for name in names:
        claim = client.get(RESOURCE_CLAIMS, name, namespace=namespace)
        reserved = claim.get("status", {}).get("reservedFor", ())
        left = [each for each in reserved if each["uid"] != uid]
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
            _let_go(client, claim)
        if owned_by(pod) in claim["metadata"].get("ownerReferences", ()):
            with contextlib.suppress(NotFound):  # an API that collects garbage was faster
                client.delete(RESOURCE_CLAIMS, name, namespace=namespace)


def protect(client: Client, claim: Body) -> None:
    """Keeps an allocated claim from being deleted under its users."""
    metadata = claim["metadata"]
    finalizers = [*metadata.get("finalizers", ()), _FINALIZER]
    client.patch(
        RESOURCE_CLAIMS,
        metadata["name"],
        MergePatch({"metadata": {"finalizers": finalizers}}),
        namespace=metadata["namespace"],
    )


def _let_go(client: Client, claim: Body) -> None:
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
