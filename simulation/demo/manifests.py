"""The manifests of deploy/."""

import contextlib
from pathlib import Path

import yaml

from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    NAMESPACES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    ApiResource,
    Scope,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.errors import NotFound

REPOSITORY = Path(__file__).parents[2]
DEPLOY = REPOSITORY / "deploy"

EXAMPLES = (
    "single-gpu",
    "shared-by-containers",
    "shared-by-pods",
    "request-per-container",
    "same-numa-node",
    "selected-by-attributes",
    "first-available",
    "share-of-a-gpu",
    "share-as-extended-resource",
    "extended-resource",
    "admin-access",
)
"""In this order they take every GPU of two nodes, 8 big and 4 small ones: `first-available` gets
its second alternative, and `admin-access` sees GPUs that are all in use."""
PARTS = ("mig-by-profile", "mig-by-memory", "mig-on-one-gpu", "partition-or-share")
"""The examples for parts of a GPU, which run when the others have ended."""

_RESOURCES = {
    resource.kind: resource
    for resource in (DEVICE_CLASSES, NAMESPACES, PODS, RESOURCE_CLAIMS, RESOURCE_CLAIM_TEMPLATES)
}


def load(path: Path) -> list[Body]:
    """The objects of a file; namespaced ones without a namespace are in `default`."""
    objects: list[Body] = list(yaml.safe_load_all(path.read_text()))
    for body in objects:
        if resource_of(body).scope is Scope.NAMESPACED:
            body["metadata"].setdefault("namespace", "default")
    return objects


def resource_of(body: Body) -> ApiResource:
    """The resource of an object. Raises KeyError for a kind that the demo does not use."""
    return _RESOURCES[body["kind"]]


def example(name: str) -> Path:
    """The file of an example."""
    return DEPLOY / "examples" / f"{name}.yaml"


def pods(objects: list[Body]) -> list[Body]:
    """The pods among the objects."""
    return [body for body in objects if body["kind"] == "Pod"]


def purpose(path: Path) -> str:
    """The comment that a file begins with, as one line."""
    lines = []
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            break
        lines.append(line.removeprefix("#").strip())
    return " ".join(lines)


def create(client: Client, body: Body) -> Body:
    """Creates an object; gives it as stored."""
    return client.create(resource_of(body), body)


def delete(client: Client, body: Body) -> None:
    """Deletes an object, if it still exists."""
    metadata = body["metadata"]
    with contextlib.suppress(NotFound):
        client.delete(resource_of(body), metadata["name"], namespace=metadata.get("namespace"))
