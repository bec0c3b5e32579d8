"""What the kubelet plugin may do with the rights of deploy/, as its own ServiceAccount.

All of it is asked of a real API server, with a token as the plugin's pod would have it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import pytest

from simulation.kubernetes.cluster import Cluster, KubectlError, ServiceAccountCredentials

_NAMESPACE, _ACCOUNT = "carina-system", "carina-kubelet-plugin"
_OWN, _OTHER = "own-node", "other-node"
_DRIVER = "gpu.carina.dev"
_CLAIMS = "plugin-rights"


@dataclass(frozen=True, slots=True)
class _Plugin:
    """kubectl with the plugin's rights."""

    cluster: Cluster
    credentials: ServiceAccountCredentials

    def kubectl(self, *arguments: str, stdin: Mapping[str, object] | None = None) -> str:
        return self.cluster.kubectl(
            *arguments,
            stdin=None if stdin is None else json.dumps(stdin),
            kubeconfig=self.credentials.kubeconfig,
        )

    def create(self, thing: Mapping[str, object]) -> str:
        return self.kubectl("create", "--validate=false", "-f", "-", "-o", "json", stdin=thing)


@pytest.fixture(scope="module")
def plugin(cluster: Cluster) -> _Plugin:
    """The plugin of the node `own-node`."""
    cluster.install_carina()
    cluster.add_fake_nodes([_OWN, _OTHER])
    cluster.assign_pod(_NAMESPACE, "plugin-of-own-node", service_account=_ACCOUNT, node=_OWN)
    credentials = cluster.service_account_credentials(
        _NAMESPACE, _ACCOUNT, pod="plugin-of-own-node"
    )
    return _Plugin(cluster, credentials)


@pytest.fixture(scope="module")
def namespace(cluster: Cluster) -> str:
    """Where the claims are."""
    cluster.kubectl("create", "namespace", _CLAIMS)
    return _CLAIMS


@pytest.fixture
def slice_of_other_node(cluster: Cluster) -> Iterator[str]:
    """A slice that the plugin of another node has written."""
    of_other = _slice("of-other-node", nodeName=_OTHER)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(of_other))
    yield "of-other-node"
    cluster.kubectl("delete", "resourceslice", "of-other-node", "--ignore-not-found")


def test_plugin_may_do_this_and_no_more(plugin: _Plugin) -> None:
    review = json.loads(
        plugin.create(
            {
                "apiVersion": "authorization.k8s.io/v1",
                "kind": "SelfSubjectRulesReview",
                "spec": {"namespace": "default"},
            }
        )
    )

    of_everybody = {"authorization.k8s.io", "authentication.k8s.io", "certificates.k8s.io"}
    allowed = {
        (group, resource, *rule.get("resourceNames", [])): set(rule["verbs"])
        for rule in review["status"]["resourceRules"]
        for group in set(rule["apiGroups"]) - of_everybody
        for resource in rule["resources"]
    }
    assert allowed == {
        ("", "nodes"): {"get"},
        ("events.k8s.io", "events"): {"create", "patch"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("resource.k8s.io", "resourceclaims/status"): {"patch", "update"},
        ("resource.k8s.io", "resourceclaims/driver", _DRIVER): {
            "associated-node:patch",
            "associated-node:update",
        },
        ("resource.k8s.io", "resourceslices"): {
            *("get", "list", "watch", "create", "update", "patch", "delete")
        },
    }


def test_plugin_writes_slices_of_its_own_node(plugin: _Plugin) -> None:
    plugin.create(_slice("of-own-node", nodeName=_OWN))
    grown = {"spec": {"pool": {"generation": 2}}}
    plugin.kubectl(
        *("patch", "resourceslice", "of-own-node", "--type=merge", "-p", json.dumps(grown))
    )
    plugin.kubectl("delete", "resourceslice", "of-own-node")

    names = plugin.kubectl("get", "resourceslices", "-o", "name").split()
    assert "resourceslice.resource.k8s.io/of-own-node" not in names


@pytest.mark.parametrize(
    ("nodes", "why"),
    [
        ({"nodeName": _OTHER}, 'slices of node "other-node"'),
        ({"allNodes": True}, "slices without spec.nodeName"),
        (
            {
                "nodeSelector": {
                    "nodeSelectorTerms": [
                        {
                            "matchFields": [
                                {"key": "metadata.name", "operator": "In", "values": [_OWN]}
                            ]
                        }
                    ]
                }
            },
            "slices without spec.nodeName",
        ),
    ],
    ids=["another node", "all nodes", "nodes by selector"],
)
def test_plugin_may_not_write_slices_of(
    plugin: _Plugin, nodes: Mapping[str, object], why: str
) -> None:
    with pytest.raises(KubectlError, match=f'the plugin of node "own-node" may not write {why}'):
        plugin.create(_slice("refused", **nodes))


def test_plugin_may_not_write_slices_of_another_driver(plugin: _Plugin) -> None:
    with pytest.raises(KubectlError, match="may not write slices of driver"):
        plugin.create(_slice("refused", "gpu.example.com", nodeName=_OWN))


def test_plugin_may_not_change_slices_of_another_node(
    plugin: _Plugin, slice_of_other_node: str
) -> None:
    change = ("--type=merge", "-p", json.dumps({"spec": {"pool": {"generation": 2}}}))

    with pytest.raises(KubectlError, match='may not write slices of node "other-node"'):
        plugin.kubectl("patch", "resourceslice", slice_of_other_node, *change)


def test_plugin_may_not_delete_slices_of_another_node(
    plugin: _Plugin, slice_of_other_node: str
) -> None:
    with pytest.raises(KubectlError, match='may not write slices of node "other-node"'):
        plugin.kubectl("delete", "resourceslice", slice_of_other_node)


def test_token_without_a_node_may_not_write_slices(plugin: _Plugin) -> None:
    unbound = plugin.cluster.service_account_credentials(_NAMESPACE, _ACCOUNT)

    with pytest.raises(KubectlError, match="the token names no node"):
        _Plugin(plugin.cluster, unbound).create(_slice("refused", nodeName=_OWN))


def test_others_are_not_held_to_the_policy(cluster: Cluster) -> None:
    cluster.install_carina()

    written = _slice("of-all-nodes", "gpu.example.com", allNodes=True)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(written))

    cluster.kubectl("delete", "resourceslice", "of-all-nodes")


def test_plugin_writes_the_state_of_its_devices(plugin: _Plugin, namespace: str) -> None:
    _allocated_claim(plugin.cluster, namespace, "on-own-node", node=_OWN)

    _report_device(plugin, namespace, "on-own-node", _DRIVER)

    claim = json.loads(
        plugin.kubectl("get", "resourceclaim", "-n", namespace, "on-own-node", "-o", "json")
    )
    assert claim["status"]["devices"][0]["data"] == {"seen": True}


@pytest.mark.parametrize(
    ("node", "driver"),
    [(_OTHER, _DRIVER), (_OWN, "gpu.example.com")],
    ids=["on another node", "of another driver"],
)
def test_plugin_may_not_write_the_state_of_a_device(
    plugin: _Plugin, namespace: str, node: str, driver: str
) -> None:
    claim = f"{driver.replace('.', '-')}-on-{node}"
    _allocated_claim(plugin.cluster, namespace, claim, node=node, driver=driver)

    with pytest.raises(KubectlError, match=r"cannot \S+-node:update resource"):
        _report_device(plugin, namespace, claim, driver)


def test_plugin_may_not_change_an_allocation(plugin: _Plugin, namespace: str) -> None:
    _allocated_claim(plugin.cluster, namespace, "to-be-kept", node=_OWN)

    with pytest.raises(KubectlError, match=r"changing status\.allocation .* requires"):
        _write_status(plugin, namespace, "to-be-kept", {"allocation": None})


def _slice(name: str, driver: str = _DRIVER, /, **nodes: object) -> dict[str, object]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name},
        "spec": {
            "driver": driver,
            "pool": {"name": name, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
            **nodes,
        },
    }


def _allocated_claim(
    cluster: Cluster, namespace: str, name: str, *, node: str, driver: str = _DRIVER
) -> None:
    """A claim that the scheduler has given a device of a node."""
    claim = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "devices": {
                "requests": [{"name": "gpu", "exactly": {"deviceClassName": "gpu.carina.dev"}}]
            }
        },
    }
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(claim))
    on_node = {"key": "metadata.name", "operator": "In", "values": [node]}
    allocation = {
        "devices": {"results": [_device(driver) | {"request": "gpu"}]},
        "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [on_node]}]},
    }
    status = json.dumps({"status": {"allocation": allocation}})
    cluster.kubectl(
        *("patch", "resourceclaim", name, "-n", namespace),
        *("--subresource=status", "--type=merge", "-p", status),
    )


def _report_device(plugin: _Plugin, namespace: str, claim: str, driver: str) -> None:
    seen = _device(driver) | {"data": {"seen": True}}
    _write_status(plugin, namespace, claim, {"devices": [seen]})


def _write_status(plugin: _Plugin, namespace: str, name: str, status: Mapping[str, object]) -> None:
    claim = json.loads(plugin.kubectl("get", "resourceclaim", "-n", namespace, name, "-o", "json"))
    path = f"/apis/resource.k8s.io/v1/namespaces/{namespace}/resourceclaims/{name}/status"
    changed = claim | {"status": claim["status"] | status}
    plugin.kubectl("replace", "--raw", path, "-f", "-", stdin=changed)


def _device(driver: str) -> dict[str, object]:
    return {"driver": driver, "pool": "pool", "device": "gpu-0"}
