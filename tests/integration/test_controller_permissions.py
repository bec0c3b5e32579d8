"""What the controller may do with the permissions of deploy/, as its own ServiceAccount.

On a real API server, for deploy/ as it is, and for an overlay that changes every name.
"""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

import pytest

from carina_dra.kube.api_resource import (
    CONFIG_MAPS,
    DEVICE_TAINT_RULES,
    LEASES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
)
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.client import Client, JsonPatch, MergePatch
from carina_dra.kube.errors import Forbidden, Invalid, NotFound
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.kube.lease import LeaderElector, LeadershipEnd
from controller.act.exclusive_taint import RULE
from controller.names import DELETE_PROTECTION, GATE
from simulation.kubernetes.cluster import DEPLOY, Cluster

_NAMESPACE = "default"
_OWNERS = {
    ("apps", "statefulsets"),
    ("jobset.x-k8s.io", "jobsets"),
    ("kubeflow.org", "jaxjobs"),
    ("kubeflow.org", "mpijobs"),
    ("kubeflow.org", "paddlejobs"),
    ("kubeflow.org", "pytorchjobs"),
    ("kubeflow.org", "tfjobs"),
    ("kubeflow.org", "xgboostjobs"),
    ("leaderworkerset.x-k8s.io", "leaderworkersets"),
    ("ray.io", "rayclusters"),
    ("scheduling.k8s.io", "podgroups"),
}
_READ = {"list", "watch"}


@dataclass(frozen=True, slots=True)
class _Controller:
    """The controller's client, and what its installation calls its parts."""

    client: Client
    kustomization: Path
    namespace: str
    account: str


@pytest.fixture(
    scope="module",
    params=[
        (DEPLOY, "carina-system", "carina-controller"),
        (Path(__file__).parent / "renamed", "gpu-system", "team-a-carina-controller"),
    ],
    ids=["shipped", "renamed"],
)
def controller(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[_Controller]:
    """The controller, installed in one of the ways."""
    kustomization, namespace, account = request.param
    cluster.kubectl("apply", "-k", str(kustomization))
    credentials = cluster.service_account_credentials(namespace, account)
    with Client(from_kubeconfig(credentials.kubeconfig)) as client:
        yield _Controller(client, kustomization, namespace, account)
    cluster.kubectl(
        "delete", "validatingadmissionpolicies,validatingadmissionpolicybindings", "--all"
    )


@pytest.fixture(scope="module")
def administrator(cluster: Cluster) -> Iterator[Client]:
    """A client with every permission."""
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        yield client


def test_controller_has_these_permissions_and_no_others(
    cluster: Cluster, controller: _Controller
) -> None:
    assert _permissions(cluster, controller, "default") == {
        **dict.fromkeys(_OWNERS, _READ),
        ("", "namespaces"): _READ,
        ("", "nodes"): _READ,
        ("", "pods"): {*_READ, "delete", "patch"},
        ("", "pods/eviction"): {"create"},
        ("", "pods/status"): {"patch"},
        ("events.k8s.io", "events"): {"create", "patch"},
        ("policy", "poddisruptionbudgets"): _READ,
        ("", "persistentvolumeclaims"): _READ,
        ("", "persistentvolumes"): _READ,
        ("storage.k8s.io", "csidrivers"): _READ,
        ("storage.k8s.io", "csinodes"): _READ,
        ("storage.k8s.io", "csistoragecapacities"): _READ,
        ("storage.k8s.io", "storageclasses"): _READ,
        ("resource.k8s.io", "deviceclasses"): _READ,
        ("resource.k8s.io", "devicetaintrules"): _READ,
        ("resource.k8s.io", "resourceclaims"): {*_READ, "patch"},
        ("resource.k8s.io", "resourceclaims/binding"): {"patch"},
        ("resource.k8s.io", "resourceclaims/status"): {"patch"},
        ("resource.k8s.io", "resourceslices"): _READ,
        ("scheduling.carina.dev", "podgroups"): _READ,
        ("scheduling.carina.dev", "podgroups/status"): {"patch"},
        ("scheduling.carina.dev", "pods/gate"): {"remove"},
        ("scheduling.carina.dev", "queues"): {*_READ, "patch"},
        ("scheduling.carina.dev", "queues/status"): {"patch"},
    }


def test_in_its_own_namespace_it_has_its_lease_besides(
    cluster: Cluster, controller: _Controller
) -> None:
    own = _permissions(cluster, controller, controller.namespace)

    everywhere = _permissions(cluster, controller, "default")
    assert {resource: own[resource] for resource in own.keys() - everywhere.keys()} == {
        ("coordination.k8s.io", "leases"): {"create"},
        ("coordination.k8s.io", "leases", controller.account): {"get", "update"},
    }


def test_exclusive_mode_adds_the_device_taint_rule(
    cluster: Cluster, controller: _Controller
) -> None:
    before = _permissions(cluster, controller, _NAMESPACE)
    patch = DEPLOY / "exclusive" / "controller-patch.yaml"

    cluster.kubectl(
        *("patch", "clusterrole", controller.account, "--type=json", f"--patch-file={patch}")
    )

    after = _permissions(cluster, controller, _NAMESPACE)
    rules = ("resource.k8s.io", "devicetaintrules")
    assert {key: after[key] for key in after if after[key] != before.get(key)} == {
        rules: {*_READ, "create"},
        (*rules, RULE): {"update", "delete"},
    }
    cluster.kubectl("apply", "-k", str(controller.kustomization))


def test_a_claim_gets_its_finalizer_its_allocation_and_its_reservation(
    administrator: Client, controller: _Controller
) -> None:
    name = administrator.create(RESOURCE_CLAIMS, _claim())["metadata"]["name"]
    protected = MergePatch({"metadata": {"finalizers": [DELETE_PROTECTION]}})
    allocated = MergePatch({"status": _ALLOCATED})

    controller.client.patch(RESOURCE_CLAIMS, name, protected, namespace=_NAMESPACE)
    stored = controller.client.patch(
        RESOURCE_CLAIMS, name, allocated, namespace=_NAMESPACE, subresource="status"
    )

    assert stored["metadata"]["finalizers"] == [DELETE_PROTECTION]
    assert stored["status"] == _ALLOCATED


def test_a_pod_loses_its_gate_and_is_pinned(administrator: Client, controller: _Controller) -> None:
    name = administrator.create(PODS, _gated_pod())["metadata"]["name"]

    released = controller.client.patch(PODS, name, _RELEASE, namespace=_NAMESPACE)

    assert "schedulingGates" not in released["spec"]
    assert released["spec"]["affinity"] == _PINNED


def test_a_pod_is_evicted_and_then_made_to_end_sooner(
    administrator: Client, controller: _Controller
) -> None:
    name = administrator.create(PODS, _gated_pod())["metadata"]["name"]
    eviction = {"metadata": {"name": name, "namespace": _NAMESPACE}}

    controller.client.create_subresource(PODS, name, "eviction", eviction, namespace=_NAMESPACE)
    with suppress(NotFound):  # it never ran, so it may be gone
        controller.client.delete(PODS, name, namespace=_NAMESPACE, grace_period_seconds=1)


def test_the_leader_takes_renews_and_releases_its_lease(
    administrator: Client, controller: _Controller
) -> None:
    lease = ObjectKey(controller.namespace, controller.account)
    stopping = threading.Event()

    def work(stopped: threading.Event) -> None:
        stopping.set()
        stopped.wait()

    outcome = LeaderElector(controller.client, lease, "a-replica").run(work, stopping)

    assert outcome is LeadershipEnd.STOPPED
    stored = administrator.get(LEASES, lease.name, namespace=lease.namespace)
    assert stored["spec"]["leaseTransitions"] == 0
    assert stored["spec"].get("holderIdentity", "") == ""


@pytest.mark.parametrize(
    "call",
    [
        pytest.param(lambda client: client.create(PODS, _gated_pod()), id="a pod is created"),
        pytest.param(
            lambda client: client.create(RESOURCE_CLAIMS, _claim()), id="a claim is created"
        ),
        pytest.param(
            lambda client: client.delete(RESOURCE_CLAIMS, "any", namespace=_NAMESPACE),
            id="a claim is deleted",
        ),
        pytest.param(
            lambda client: client.patch(NODES, "any", MergePatch({})), id="a node is changed"
        ),
        pytest.param(
            lambda client: client.create(DEVICE_TAINT_RULES, _TAINT_RULE),
            id="devices are tainted, in the mode that is not exclusive",
        ),
        pytest.param(
            lambda client: client.get(CONFIG_MAPS, "any", namespace=_NAMESPACE),
            id="a ConfigMap is read",
        ),
        pytest.param(
            lambda client: client.get(LEASES, "any", namespace="kube-system"),
            id="a Lease of another namespace is read",
        ),
        pytest.param(
            lambda client: client.create(LEASES, _lease("kube-system")),
            id="a Lease of another namespace is created",
        ),
    ],
)
def test_refused(controller: _Controller, call: Callable[[Client], object]) -> None:
    with pytest.raises(Forbidden):
        call(controller.client)


def test_a_lease_of_another_name_is_refused(administrator: Client, controller: _Controller) -> None:
    other = administrator.create(LEASES, _lease(controller.namespace))

    with pytest.raises(Forbidden):
        controller.client.replace(LEASES, other)

    administrator.delete(LEASES, "of-another", namespace=controller.namespace)


def test_only_its_driver_writes_the_status_of_a_device(
    administrator: Client, controller: _Controller
) -> None:
    name = administrator.create(RESOURCE_CLAIMS, _claim())["metadata"]["name"]
    of_device = {key: _DEVICE[key] for key in ("driver", "pool", "device")}
    reported = MergePatch({"status": _ALLOCATED | {"devices": [of_device]}})

    with pytest.raises(Invalid, match='requires resource="resourceclaims/driver"'):
        controller.client.patch(
            RESOURCE_CLAIMS, name, reported, namespace=_NAMESPACE, subresource="status"
        )


def _permissions(
    cluster: Cluster, controller: _Controller, namespace: str
) -> dict[tuple[str, ...], set[str]]:
    """The verbs by API group, resource, and name if the rule has one; less those of everybody."""
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SelfSubjectRulesReview",
        "spec": {"namespace": namespace},
    }
    account = f"--as=system:serviceaccount:{controller.namespace}:{controller.account}"
    answer = json.loads(
        cluster.kubectl(
            *("create", "--validate=false", "-f", "-", "-o", "json", account),
            stdin=json.dumps(review),
        )
    )
    of_everybody = {"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"}
    found: dict[tuple[str, ...], set[str]] = {}
    for rule in answer["status"]["resourceRules"]:
        for group in set(rule["apiGroups"]) - of_everybody:
            for resource in rule["resources"]:
                key = (group, resource, *rule.get("resourceNames", ()))
                found.setdefault(key, set()).update(rule["verbs"])
    return found


_PINNED = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [
                {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["a-node"]}]}
            ]
        }
    }
}
_RELEASE = JsonPatch(
    [
        {"op": "remove", "path": "/spec/schedulingGates/0"},
        {"op": "add", "path": "/spec/affinity", "value": _PINNED},
    ]
)
_DEVICE = {"request": "gpu", "driver": "gpu.carina.dev", "pool": "a-node", "device": "gpu-0"}
_ALLOCATED: Body = {
    "allocation": {
        "devices": {"results": [_DEVICE]},
        "allocationTimestamp": "2026-01-01T00:00:00Z",
    },
    "reservedFor": [{"resource": "pods", "name": "pod", "uid": "pod-uid"}],
}
_TAINT_RULE: Body = {
    "metadata": {"name": "carina"},
    "spec": {
        "deviceSelector": {"driver": "gpu.carina.dev"},
        "taint": {"key": "example.com/any", "effect": "NoSchedule"},
    },
}


def _gated_pod() -> Body:
    return {
        "metadata": {"generateName": "gated-", "namespace": _NAMESPACE},
        "spec": {
            "schedulingGates": [{"name": GATE}],
            "containers": [{"name": "main", "image": "none"}],
        },
    }


def _claim() -> Body:
    return {
        "metadata": {"generateName": "claim-", "namespace": _NAMESPACE},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.carina.dev"}}]
            }
        },
    }


def _lease(namespace: str) -> Body:
    return {"metadata": {"namespace": namespace, "name": "of-another"}, "spec": {}}
