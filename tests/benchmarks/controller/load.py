"""Pods to be scheduled, with a claim for one GPU each.

They have an owner that is their controller, as most pods do: such pods are pinned to their nodes.
The owner is a ConfigMap, which does nothing, so that nobody but the benchmark creates pods.
"""

from collections.abc import Mapping
from typing import Any, Final

from carina_dra.kube.api_resource import (
    CONFIG_MAPS,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
)
from carina_dra.kube.client import Selection
from simulation.kubernetes.process import wait_for
from tests.benchmarks.controller.sightings import sightings
from tests.benchmarks.controller.site import Site, in_parallel
from tests.benchmarks.fleet import DRIVER

_TEMPLATE: Final = "gpu"
_OWNER: Final = "owner"
_CREATION_S: Final = 180.0
_REMOVAL_S: Final = 180.0


def prepare(site: Site, namespace: str, labels: Mapping[str, str]) -> None:
    """Creates a namespace, with a template for claims with these labels."""
    site.cluster.create_namespace(namespace)
    request = {"name": "gpu", "exactly": {"deviceClassName": DRIVER}}
    site.client.create(
        RESOURCE_CLAIM_TEMPLATES,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaimTemplate",
            "metadata": {"namespace": namespace, "name": _TEMPLATE},
            "spec": {
                "metadata": {"labels": dict(labels)},
                "spec": {"devices": {"requests": [request]}},
            },
        },
    )


def create_pods(site: Site, namespace: str, number: int, labels: Mapping[str, str]) -> None:
    """Creates pods, several at a time."""
    metadata = {"namespace": namespace, "name": _OWNER}
    owner = site.client.create(
        CONFIG_MAPS, {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    )
    uid = owner["metadata"]["uid"]
    in_parallel(
        lambda index: site.client.create(PODS, _pod(namespace, f"pod-{index:05}", labels, uid)),
        range(number),
    )


def await_claims(site: Site, namespace: str, number: int) -> None:
    """Waits until this number of claims has been created from the template."""
    with sightings(site.client, RESOURCE_CLAIMS, namespace, lambda _: True) as created:
        created.wait(number, timeout=_CREATION_S)


def remove(site: Site, namespace: str) -> None:
    """Removes the pods of a namespace, and waits until their devices are free."""
    pods = Selection(namespace)
    site.client.delete_collection(PODS, pods, timeout=_REMOVAL_S)
    wait_for(
        f"the claims of {namespace} to be gone",
        lambda: not site.client.list(RESOURCE_CLAIMS, pods).items,
        timeout=_REMOVAL_S,
    )


def _pod(namespace: str, name: str, labels: Mapping[str, str], owner: str) -> dict[str, Any]:
    resources = {"claims": [{"name": "gpu"}]}
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": _OWNER, "uid": owner}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": namespace,
            "name": name,
            "labels": dict(labels),
            "ownerReferences": [{**reference, "controller": True}],
        },
        "spec": {
            "terminationGracePeriodSeconds": 0,  # no kubelet says that it has ended
            "resourceClaims": [{"name": "gpu", "resourceClaimTemplateName": _TEMPLATE}],
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }
