"""What `carina doctor` looks at in a cluster, with the permissions of its user.

Each check reads what it needs by itself, so that one that is refused costs no other.
"""

import re
import time
from argparse import Namespace
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from importlib.metadata import version
from itertools import product
from typing import Final, TypeAlias

from carina_dra.cli.diagnosis import Check, Diagnosis, bad, ok, warn
from carina_dra.kube import configuration
from carina_dra.kube.api_resource import (
    DAEMON_SETS,
    DEVICE_CLASSES,
    LEASES,
    ApiResource,
)
from carina_dra.kube.api_resource import Scope as ResourceScope
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, Forbidden, NotFound, PathNotFound, Unauthorized
from controller.commands import slice_checks
from controller.commands.installation import Installation, ago, seconds
from controller.names import QUEUES

_OLDEST: Final = (1, 34)
"""The first version with resource.k8s.io/v1."""
_LEASE_SECONDS: Final = 60.0
_REVIEWS: Final = ApiResource(
    "authorization.k8s.io",
    "v1",
    "subjectaccessreviews",
    "SubjectAccessReview",
    ResourceScope.CLUSTER,
)
_SELF_REVIEWS: Final = ApiResource(
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    "SelfSubjectAccessReview",
    ResourceScope.CLUSTER,
)
_DEPLOYMENTS: Final = ApiResource(
    "apps", "v1", "deployments", "Deployment", ResourceScope.NAMESPACED
)
_OF_DRIVER: Final = "resourceclaims/driver"
"""What is allowed for one driver alone, by its name."""
_RESOURCE: Final = "resource.k8s.io"
_NEEDED: Final[Mapping[str, Sequence[tuple[str, str, str]]]] = {
    "plugin": (
        ("get", _RESOURCE, "resourceclaims"),
        ("list watch create update delete", _RESOURCE, "resourceslices"),
        ("patch", _RESOURCE, "resourceclaims/status"),
        ("associated-node:patch", _RESOURCE, _OF_DRIVER),
        ("get list watch patch", "", "nodes"),
        ("patch", "", "nodes/status"),
        ("create patch", "events.k8s.io", "events"),
    ),
    "controller": (
        ("list watch", "", "namespaces nodes pods persistentvolumeclaims persistentvolumes"),
        (
            "list watch",
            _RESOURCE,
            "deviceclasses devicetaintrules resourceclaims resourceslices",
        ),
        ("list watch", "policy", "poddisruptionbudgets"),
        (
            "list watch",
            "storage.k8s.io",
            "csidrivers csinodes csistoragecapacities storageclasses",
        ),
        ("list watch", "scheduling.carina.dev", "podgroups queues"),
        ("patch", _RESOURCE, "resourceclaims resourceclaims/binding resourceclaims/status"),
        ("patch", "", "pods pods/status"),
        ("remove", "scheduling.carina.dev", "pods/gate"),
        ("create", "", "pods/eviction"),
        ("delete", "", "pods"),
        ("patch", "scheduling.carina.dev", "podgroups/status queues queues/status"),
        ("create patch", "events.k8s.io", "events"),
    ),
}
"""Verbs, group and resources of what the two ServiceAccounts need everywhere, without the owners of
pods, which need not be installed."""
_READ: Final = (
    ("list", "", "nodes"),
    ("list", "resource.k8s.io", "resourceslices"),
    ("list", "resource.k8s.io", "deviceclasses"),
)
"""What the checks themselves need."""


def checks(arguments: Namespace) -> Sequence[Check]:
    """Returns the checks of a cluster."""
    try:
        connection = configuration.find(None)
    except ConfigurationError as error:
        problem = bad(str(error), "or run it in a pod with a ServiceAccount")
        return [Check("API server", lambda: [problem])]
    cluster = Installation(
        Client(connection, user_agent="carina-doctor"),
        arguments.driver_name,
        arguments.namespace,
        arguments.plugin,
        arguments.controller_name,
        max(1.0, arguments.timeout / 3),
    )
    looks: Mapping[str, _Look] = {
        "API server": _api_server,
        "permissions": _own_permissions,
        "feature gates": slice_checks.feature_gates,
        "DeviceClasses": _device_classes,
        "CustomResourceDefinitions": _definitions,
        "kubelet plugin": _plugin,
        "controller": _controller,
        "ServiceAccounts": _service_accounts,
        "ResourceSlices": slice_checks.slices,
        "other drivers": slice_checks.other_drivers,
    }
    return [Check(name, partial(answered, look, cluster)) for name, look in looks.items()]


_Look: TypeAlias = Callable[[Installation], Iterable[Diagnosis]]


def answered(look: _Look, cluster: Installation) -> Iterable[Diagnosis]:
    """Returns what a look finds, or that the API server does not answer it."""
    try:
        return list(look(cluster))
    except Forbidden as error:
        return [warn(f"cannot be told: {error}", "run it with more permissions")]
    except Unauthorized as error:
        return [bad(str(error), "renew the credentials in your kubeconfig")]
    except PathNotFound as error:
        remedy = "see that the API server serves it: Kubernetes 1.34 or later, and --runtime-config"
        return [bad(str(error), remedy)]
    except ApiError as error:
        return [bad(str(error), "check that the API server can be reached from here")]


def _api_server(cluster: Installation) -> Iterator[Diagnosis]:
    found = cluster.client.server_version(timeout=cluster.patience)
    numbers = re.match(r"v?(\d+)\.(\d+)", found)
    if numbers is None:
        yield warn(f"its version is {found!r}", "Carina needs Kubernetes 1.34 or later")
    elif (int(numbers[1]), int(numbers[2])) < _OLDEST:
        yield bad(f"its version is {found}", "Carina needs resource.k8s.io/v1, of 1.34 or later")
    else:
        yield ok(f"its version is {found}")


def _own_permissions(cluster: Installation) -> Iterator[Diagnosis]:
    lacking = [
        f"{verb} {resource}"
        for verb, group, resource in _READ
        if not _allowed(cluster, _SELF_REVIEWS, {}, verb, group, resource)
    ]
    if lacking:
        yield warn(f"you may not {', '.join(lacking)}", "run it with more permissions")
    else:
        yield ok("you may read what the checks need")


def _allowed(
    cluster: Installation,
    reviews: ApiResource,
    subject: Mapping[str, str],
    verb: str,
    group: str,
    resource: str,
) -> bool:
    plural, _, subresource = resource.partition("/")
    asked = {"verb": verb, "group": group, "resource": plural, "subresource": subresource}
    if resource == _OF_DRIVER:
        asked["name"] = cluster.driver
    body = {
        "apiVersion": reviews.api_version,
        "kind": reviews.kind,
        "spec": {**subject, "resourceAttributes": asked},
    }
    answer = cluster.client.create(reviews, body, timeout=cluster.patience)
    return bool((answer.get("status") or {}).get("allowed"))


def _device_classes(cluster: Installation) -> Iterator[Diagnosis]:
    listed = cluster.client.list(DEVICE_CLASSES, timeout=cluster.patience).items
    names = [body["metadata"]["name"] for body in listed if _selects(body, cluster.driver)]
    if names:
        yield ok(f"of {cluster.driver}: {', '.join(sorted(names))}")
    else:
        yield bad(f"none selects devices of {cluster.driver}", "install those of Carina's chart")


def _selects(device_class: Body, driver: str) -> bool:
    selectors = (device_class.get("spec") or {}).get("selectors") or ()
    return any(driver in (item.get("cel") or {}).get("expression", "") for item in selectors)


def _definitions(cluster: Installation) -> Iterator[Diagnosis]:
    try:
        queues = cluster.client.list(QUEUES, timeout=cluster.patience).items
    except (NotFound, PathNotFound):
        yield warn("there are no Queues in this API server", "install the chart for queues")
    else:
        yield ok(f"Queue and PodGroup are defined; Queues: {len(queues)}")


def _plugin(cluster: Installation) -> Iterator[Diagnosis]:
    where = f"DaemonSet {cluster.namespace}/{cluster.plugin}"
    try:
        body = cluster.client.get(
            DAEMON_SETS, cluster.plugin, namespace=cluster.namespace, timeout=cluster.patience
        )
    except NotFound:
        yield bad(f"there is no {where}", "install the chart, or name it with --plugin")
        return
    status = body.get("status") or {}
    wanted, ready = status.get("desiredNumberScheduled", 0), status.get("numberReady", 0)
    if ready < wanted:
        remedy = f"kubectl get pods -n {cluster.namespace} -o wide, and the log of those not ready"
        yield bad(f"{where}: {ready} of {wanted} pods are ready", remedy)
    elif not wanted:
        yield warn(f"{where} has no pods", "see its node selector and affinity")
    else:
        yield ok(f"{where}: all {wanted} pods are ready")
    yield from _image(where, body)


def _image(where: str, body: Body) -> Iterator[Diagnosis]:
    """Compares the image of a workload with this command."""
    here = version("carina-dra")
    images = {container["image"] for container in body["spec"]["template"]["spec"]["containers"]}
    for image in sorted(images):
        name, _, tag = image.partition("@")[0].rpartition(":")
        if not name or "/" in tag:
            continue  # named by its digest alone
        if tag.removeprefix("v") != here:
            yield warn(f"{where} runs {tag}, and this command is {here}", "use the same version")


def _controller(cluster: Installation) -> Iterator[Diagnosis]:
    where = f"Deployment {cluster.namespace}/{cluster.controller}"
    try:
        body = cluster.client.get(
            _DEPLOYMENTS,
            cluster.controller,
            namespace=cluster.namespace,
            timeout=cluster.patience,
        )
    except NotFound:
        yield warn(f"there is no {where}", "without it, pods of queues do not start")
        return
    yield from _image(where, body)
    lease = f"Lease {cluster.namespace}/{cluster.controller}"
    remedy = f"kubectl logs -n {cluster.namespace} deployment/{cluster.controller}"
    try:
        spec = cluster.client.get(
            LEASES, cluster.controller, namespace=cluster.namespace, timeout=cluster.patience
        )["spec"]
    except NotFound:
        yield bad(f"there is no {lease}: no controller has ever led", remedy)
        return
    holder, renewed = spec.get("holderIdentity"), spec.get("renewTime")
    age = time.time() - seconds(renewed) if renewed else float("inf")
    if not holder or age > _LEASE_SECONDS:
        yield bad(f"nobody leads: {lease} was renewed {ago(age)}", remedy)
    else:
        yield ok(f"{holder} leads, and renewed {lease} {ago(age)}")


def _service_accounts(cluster: Installation) -> Iterator[Diagnosis]:
    accounts = {"plugin": cluster.plugin, "controller": cluster.controller}
    for part, account in accounts.items():
        subject = f"system:serviceaccount:{cluster.namespace}:{account}"
        lacking = [
            f"{verb} {resource}"
            for verbs, group, resources in _NEEDED[part]
            for verb, resource in product(verbs.split(), resources.split())
            if not _allowed(cluster, _REVIEWS, {"user": subject}, verb, group, resource)
        ]
        if lacking:
            yield bad(f"{account} may not {', '.join(lacking)}", "apply the chart's permissions")
        else:
            yield ok(f"{account} may do what it needs")
