"""The policy of who may use which DeviceClass, on a real API server."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from deploy.manifests import rendered
from simulation.kubernetes.cluster import Cluster, KubectlError
from simulation.kubernetes.process import wait_for

_CLASS, _OTHER = "gpu.carina.dev", "share.gpu.carina.dev"
_LABEL = f"class.carina.dev/{_CLASS}=allowed"


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster, helm: Path) -> Iterator[tuple[str, str]]:
    """A namespace without the label and one with it, with the policies in force."""
    values = (f"deviceClasses.restricted={{{_CLASS}}}",)
    manifest = rendered(helm, *values)["policies/restricted-classes.yaml"]
    plain = cluster.create_namespace("restricted-classes-plain")
    allowed = cluster.create_namespace("restricted-classes-allowed")
    cluster.kubectl("label", "namespace", allowed, _LABEL)
    cluster.kubectl("apply", "-f", "-", stdin=manifest)
    wait_for("the policies to be in force", lambda: refusal(cluster, claim(plain, _CLASS)))
    wait_for("the policies to be in force", lambda: refusal(cluster, pod(plain, "nvidia.com/gpu")))
    yield plain, allowed
    cluster.kubectl("delete", "-f", "-", stdin=manifest)


def request(*classes: str) -> dict[str, Any]:
    if len(classes) == 1:
        return {"name": "gpu", "exactly": {"deviceClassName": classes[0]}}
    alternatives = [{"name": f"a{i}", "deviceClassName": name} for i, name in enumerate(classes)]
    return {"name": "gpu", "firstAvailable": alternatives}


def claim(namespace: str, *classes: str) -> dict[str, Any]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": "claim", "namespace": namespace},
        "spec": {"devices": {"requests": [request(*classes)]}},
    }


def template(namespace: str, *classes: str) -> dict[str, Any]:
    return {
        **claim(namespace),
        "kind": "ResourceClaimTemplate",
        "spec": {"spec": {"devices": {"requests": [request(*classes)]}}},
    }


def pod(namespace: str, resource: str) -> dict[str, Any]:
    container = {"name": "c", "image": "c", "resources": {"limits": {resource: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {"containers": [container]},
    }


def refusal(cluster: Cluster, body: dict[str, Any]) -> str:
    """Why the API server refuses an object; empty if it does not."""
    try:
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(body))
    except KubectlError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("make", [claim, template])
@pytest.mark.parametrize("classes", [(_CLASS,), (_OTHER, _CLASS)])
def test_restricted_class_needs_the_label(
    cluster: Cluster, namespaces: tuple[str, str], make: Any, classes: tuple[str, ...]
) -> None:
    plain, allowed = namespaces

    assert f'DeviceClass "{_CLASS}" is not for namespace "{plain}"' in refusal(
        cluster, make(plain, *classes)
    )
    assert refusal(cluster, make(allowed, *classes)) == ""


@pytest.mark.parametrize("make", [claim, template])
def test_other_classes_are_for_all(
    cluster: Cluster, namespaces: tuple[str, str], make: Any
) -> None:
    assert refusal(cluster, make(namespaces[0], _OTHER)) == ""


@pytest.mark.parametrize(
    "resource", ["nvidia.com/gpu", f"deviceclass.resource.kubernetes.io/{_CLASS}"]
)
def test_restricted_class_needs_the_label_as_an_extended_resource_too(
    cluster: Cluster, namespaces: tuple[str, str], resource: str
) -> None:
    plain, allowed = namespaces

    assert f"set the label {_LABEL} on the namespace" in refusal(cluster, pod(plain, resource))
    assert refusal(cluster, pod(allowed, resource)) == ""


def test_pods_without_devices_need_no_label(cluster: Cluster, namespaces: tuple[str, str]) -> None:
    assert refusal(cluster, pod(namespaces[0], "cpu")) == ""


def test_pods_that_ask_for_none_need_no_label(
    cluster: Cluster, namespaces: tuple[str, str]
) -> None:
    """Charts write so to opt out of GPUs."""
    body = pod(namespaces[0], "nvidia.com/gpu")
    body["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] = "0"
    assert refusal(cluster, body) == ""


@pytest.mark.parametrize("name", ["carina-restricted-classes", "carina-restricted-resources"])
def test_server_finds_no_mistake_in_the_policy(
    cluster: Cluster, namespaces: tuple[str, str], name: str
) -> None:
    if not cluster.controllers_run:
        pytest.skip("a controller checks the types, and here is only an API server")
    policy = f"validatingadmissionpolicy/{name}"
    cluster.kubectl("wait", policy, "--for=jsonpath={.status.observedGeneration}=1")

    status = json.loads(cluster.kubectl("get", policy, "-o", "json"))["status"]
    assert status["typeChecking"] == {}
