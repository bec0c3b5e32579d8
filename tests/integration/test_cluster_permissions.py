"""What the kubelet plugin may do with the permissions of deploy/, as its own ServiceAccount.

Every rule is checked on a real API server, with the token that the plugin's pod would have: for
deploy/ as it is, and for an overlay that changes every name.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from carina_dra.kube import configuration
from carina_dra.kube.api_resource import NODES
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import Forbidden
from simulation.kubernetes.cluster import (
    DEPLOY,
    Cluster,
    KubectlError,
    ServiceAccountCredentials,
)

_OWN, _OTHER = "own-node", "other-node"
_OF_OWN_NODE = {"nodeName": _OWN}


def _selected(node: str) -> dict[str, object]:
    fields = [{"key": "metadata.name", "operator": "In", "values": [node]}]
    return {"nodeSelectorTerms": [{"matchFields": fields}]}


_OTHER_DRIVER = "gpu.example.com"
_SLICES = "/apis/resource.k8s.io/v1/resourceslices"
_OTHER_NAMESPACE = "plugin-of-another-driver"


@dataclass(frozen=True, slots=True)
class _Installation:
    """What one way to install Carina calls its parts."""

    kustomization: Path
    namespace: str
    service_account: str
    driver: str


_SHIPPED = _Installation(DEPLOY, "carina-system", "carina-kubelet-plugin", "gpu.carina.dev")
_RENAMED = _Installation(
    Path(__file__).parent / "renamed",
    "gpu-system",
    "team-a-carina-kubelet-plugin",
    "gpu.team-a.example.com",
)


@dataclass(frozen=True, slots=True)
class _Plugin:
    """kubectl with a plugin's permissions."""

    cluster: Cluster
    driver: str
    credentials: ServiceAccountCredentials

    def kubectl(self, *arguments: str, stdin: Mapping[str, object] | None = None) -> str:
        return self.cluster.kubectl(
            *arguments,
            stdin=None if stdin is None else json.dumps(stdin),
            kubeconfig=self.credentials.kubeconfig,
        )

    def create(self, manifest: Mapping[str, object]) -> str:
        return self.kubectl("create", "--validate=false", "-f", "-", "-o", "json", stdin=manifest)

    def replace(self, manifest: Mapping[str, object]) -> str:
        return self.kubectl("replace", "--validate=false", "-f", "-", stdin=manifest)


@pytest.fixture(scope="module", autouse=True)
def nodes(cluster: Cluster) -> Iterator[None]:
    """Two nodes."""
    cluster.add_fake_nodes([_OWN, _OTHER])
    yield
    cluster.kubectl("delete", "node", _OWN, _OTHER)


@pytest.fixture(scope="module", params=[_SHIPPED, _RENAMED], ids=["shipped", "renamed"])
def installation(cluster: Cluster, request: pytest.FixtureRequest) -> Iterator[_Installation]:
    """Carina, installed in one of the ways, whose policy alone is in force."""
    installed: _Installation = request.param
    policies = "validatingadmissionpolicies,validatingadmissionpolicybindings"
    cluster.kubectl("delete", policies, "--all")
    cluster.install_carina(installed.kustomization)
    yield installed
    cluster.kubectl("delete", policies, "--all")


@pytest.fixture(scope="module")
def plugin(cluster: Cluster, installation: _Installation) -> _Plugin:
    """The plugin of the node `own-node`."""
    namespace, account = installation.namespace, installation.service_account
    cluster.assign_pod(namespace, "plugin-of-own-node", service_account=account, node=_OWN)
    credentials = cluster.service_account_credentials(namespace, account, pod="plugin-of-own-node")
    return _Plugin(cluster, installation.driver, credentials)


@pytest.fixture(scope="module")
def other_namespace(cluster: Cluster) -> str:
    """A namespace without Carina."""
    return cluster.create_namespace(_OTHER_NAMESPACE)


@pytest.fixture(scope="module")
def plugin_of_another_driver(cluster: Cluster, other_namespace: str) -> _Plugin:
    """A plugin on `own-node` whose role has every verb on its API group."""
    rules = [{"apiGroups": ["resource.k8s.io"], "resources": ["*"], "verbs": ["*"]}]
    return _plugin_with_role(cluster, other_namespace, "theirs", _OTHER_DRIVER, rules)


@pytest.fixture(scope="module")
def plugin_with_own_role(cluster: Cluster, other_namespace: str) -> _Plugin:
    """A plugin of Carina on `own-node` whose role has the rules of deploy/, but not its label."""
    driver, verb = "gpu.own-role.example.com", ["associated-node:write"]
    rules = [
        {"apiGroups": ["resource.k8s.io"], "resources": ["resourceslices"], "verbs": ["create"]},
        {"apiGroups": ["carina.dev"], "resources": ["resourceslices"], "verbs": verb},
        {
            "apiGroups": ["carina.dev"],
            "resources": ["resourceslices/driver"],
            "resourceNames": [driver],
            "verbs": verb,
        },
    ]
    return _plugin_with_role(cluster, other_namespace, "own-role", driver, rules)


@pytest.fixture
def slice_of_other_node(cluster: Cluster, installation: _Installation) -> Iterator[str]:
    """A slice that the plugin of another node has written."""
    of_other = _slice("of-other-node", installation.driver, {"nodeName": _OTHER}, pool=_OTHER)
    cluster.kubectl("create", "-f", "-", stdin=json.dumps(of_other))
    yield "of-other-node"
    cluster.kubectl("delete", "resourceslice", "of-other-node", "--ignore-not-found")


def test_plugin_has_these_permissions_and_no_others(plugin: _Plugin) -> None:
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
        ("", "nodes"): {"get", "list", "watch", "patch"},
        ("", "nodes/status"): {"patch"},
        ("events.k8s.io", "events"): {"create", "patch"},
        ("resource.k8s.io", "resourceclaims"): {"get"},
        ("resource.k8s.io", "resourceclaims/status"): {"patch"},
        ("resource.k8s.io", "resourceclaims/driver", plugin.driver): {"associated-node:patch"},
        ("resource.k8s.io", "resourceslices"): {"list", "watch", "create", "update", "delete"},
        ("carina.dev", "resourceslices"): {"associated-node:write"},
        ("carina.dev", "resourceslices/driver", plugin.driver): {"associated-node:write"},
    }


def test_plugin_writes_slices_of_its_own_node(plugin: _Plugin) -> None:
    written = json.loads(plugin.create(_slice("of-own-node", plugin.driver)))

    written["spec"]["pool"]["generation"] = 2
    plugin.replace(written)
    plugin.kubectl("delete", "resourceslice", "of-own-node")

    names = plugin.kubectl("get", "resourceslices", "-o", "name").split()
    assert "resourceslice.resource.k8s.io/of-own-node" not in names


# Two policies refuse most of what is refused, and the API server names one of them.
_NODES_WITHOUT_A_NAME = pytest.mark.parametrize(
    "nodes", [{"allNodes": True}, {"nodeSelector": _selected(_OWN)}], ids=["all", "selected"]
)


def test_plugin_may_not_write_slices_of_another_node(plugin: _Plugin) -> None:
    theirs = _slice("refused", plugin.driver, {"nodeName": _OTHER}, pool=_OTHER)

    with pytest.raises(KubectlError, match='"own-node" may not write slices of node "other-node"'):
        plugin.create(theirs)


@_NODES_WITHOUT_A_NAME
def test_plugin_may_not_write_slices_of_several_nodes(
    plugin: _Plugin, nodes: Mapping[str, object]
) -> None:
    refusal = r"may not write slices of more than one node|must have spec\.nodeName"

    with pytest.raises(KubectlError, match=refusal):
        plugin.create(_slice("refused", plugin.driver, nodes))


def test_plugin_may_not_write_into_the_pool_of_another_node(plugin: _Plugin) -> None:
    refusal = 'may not write slices of pool "other-node"|must be in pool "own-node"'

    with pytest.raises(KubectlError, match=refusal):
        plugin.create(_slice("refused", plugin.driver, pool=_OTHER))


@pytest.mark.usefixtures("installation")
@_NODES_WITHOUT_A_NAME
def test_plugin_with_a_role_of_its_own_may_not_write_slices_of_several_nodes(
    plugin_with_own_role: _Plugin, nodes: Mapping[str, object]
) -> None:
    with pytest.raises(KubectlError, match="may not write slices of more than one node"):
        plugin_with_own_role.create(_slice("refused", plugin_with_own_role.driver, nodes))


@pytest.mark.usefixtures("installation")
def test_plugin_with_a_role_of_its_own_may_not_write_into_the_pool_of_another_node(
    plugin_with_own_role: _Plugin,
) -> None:
    with pytest.raises(KubectlError, match='may not write slices of pool "other-node"'):
        plugin_with_own_role.create(_slice("refused", plugin_with_own_role.driver, pool=_OTHER))


def test_plugin_may_not_write_slices_of_another_driver(plugin: _Plugin) -> None:
    with pytest.raises(KubectlError, match=f'may not write slices of driver "{_OTHER_DRIVER}"'):
        plugin.create(_slice("refused", _OTHER_DRIVER))


def test_plugin_may_not_change_slices_of_another_node(
    plugin: _Plugin, slice_of_other_node: str
) -> None:
    found = json.loads(plugin.kubectl("get", "resourceslices", "-o", "json"))["items"]
    (theirs,) = [item for item in found if item["metadata"]["name"] == slice_of_other_node]
    theirs["spec"]["pool"]["generation"] = 2

    with pytest.raises(KubectlError, match='may not write slices of node "other-node"'):
        plugin.kubectl(
            *("replace", "--raw", f"{_SLICES}/{slice_of_other_node}", "-f", "-"), stdin=theirs
        )


def test_plugin_may_not_make_a_slice_of_another_node_its_own(
    plugin: _Plugin, slice_of_other_node: str
) -> None:
    version = plugin.cluster.kubectl(
        *("get", "resourceslice", slice_of_other_node),
        *("-o", "jsonpath={.metadata.resourceVersion}"),
    )
    taken = _slice(slice_of_other_node, plugin.driver, resource_version=version)

    with pytest.raises(KubectlError, match=r'may not write slices of node "other-node"|immutable'):
        plugin.kubectl(
            *("replace", "--raw", f"{_SLICES}/{slice_of_other_node}", "-f", "-"), stdin=taken
        )


def test_plugin_may_not_delete_slices_of_another_node(
    plugin: _Plugin, slice_of_other_node: str
) -> None:
    with pytest.raises(KubectlError, match='may not write slices of node "other-node"'):
        plugin.kubectl("delete", "resourceslice", slice_of_other_node)


def test_token_without_a_node_may_not_write_slices(
    plugin: _Plugin, installation: _Installation
) -> None:
    unbound = plugin.cluster.service_account_credentials(
        installation.namespace, installation.service_account
    )

    with pytest.raises(KubectlError, match="the token names no node"):
        _Plugin(plugin.cluster, plugin.driver, unbound).create(_slice("refused", plugin.driver))


def test_nobody_writes_devices_of_the_driver_into_the_pool_of_another_node(
    plugin: _Plugin, plugin_of_another_driver: _Plugin
) -> None:
    forged = _slice("refused", plugin.driver, pool=_OTHER)
    kubelet = ("--as=system:node:own-node", "--as-group=system:nodes")

    with pytest.raises(KubectlError, match='must be in pool "own-node"'):
        plugin_of_another_driver.create(forged)
    with pytest.raises(KubectlError, match='must be in pool "own-node"'):
        plugin.cluster.kubectl("create", "-f", "-", *kubelet, stdin=json.dumps(forged))


def test_nobody_writes_devices_of_the_driver_for_all_nodes(
    plugin: _Plugin, plugin_of_another_driver: _Plugin
) -> None:
    with pytest.raises(KubectlError, match=r"must have spec\.nodeName"):
        plugin_of_another_driver.create(_slice("refused", plugin.driver, {"allNodes": True}))


@pytest.mark.parametrize(
    "nodes", [{"nodeName": _OTHER}, {"allNodes": True}], ids=["one node", "all nodes"]
)
def test_plugins_of_other_drivers_write_as_before(
    plugin: _Plugin, plugin_of_another_driver: _Plugin, nodes: Mapping[str, object]
) -> None:
    theirs = plugin_of_another_driver

    written = json.loads(theirs.create(_slice("theirs", theirs.driver, nodes, pool="theirs")))
    written["spec"]["pool"]["generation"] = 2
    theirs.replace(written)
    theirs.kubectl("delete", "resourceslice", "theirs")


def test_administrators_may_delete_what_a_plugin_wrote(plugin: _Plugin, cluster: Cluster) -> None:
    plugin.create(_slice("to-be-deleted", plugin.driver))

    cluster.kubectl("delete", "resourceslice", "to-be-deleted")


def test_service_account_with_every_permission_is_exempt(
    plugin: _Plugin, other_namespace: str, cluster: Cluster
) -> None:
    account = "administrator"
    cluster.kubectl("create", "serviceaccount", account, "-n", _OTHER_NAMESPACE)
    _bind(cluster, account, [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}])
    credentials = cluster.service_account_credentials(_OTHER_NAMESPACE, account)
    plugin.create(_slice("to-be-deleted", plugin.driver))

    _Plugin(cluster, plugin.driver, credentials).kubectl("delete", "resourceslice", "to-be-deleted")

    cluster.kubectl("delete", "serviceaccount", account, "-n", _OTHER_NAMESPACE)


_SUBRESOURCES = pytest.mark.parametrize("subresource", [None, "status"], ids=["object", "status"])


def test_plugin_says_on_its_own_node_that_its_gpus_are_released(plugin: _Plugin) -> None:
    _patch_node(plugin, _annotation(f"{plugin.driver}/release-phase"))
    _patch_node(plugin, _condition(f"{plugin.driver}/Released"), subresource="status")

    node = json.loads(plugin.kubectl("get", "node", _OWN, "-o", "json"))
    assert node["metadata"]["annotations"][f"{plugin.driver}/release-phase"] == "released"
    conditions = {each["type"]: each["status"] for each in node["status"]["conditions"]}
    assert conditions[f"{plugin.driver}/Released"] == "True"
    assert conditions["Ready"] == "True"


@_SUBRESOURCES
def test_plugin_may_not_write_the_node_of_another_plugin(
    plugin: _Plugin, subresource: str | None
) -> None:
    change = _annotation(f"{plugin.driver}/release-phase")

    with pytest.raises(Forbidden, match='"own-node" may not write Node "other-node"'):
        _patch_node(plugin, change, node=_OTHER, subresource=subresource)


@_SUBRESOURCES
def test_plugin_may_not_write_annotations_of_others(
    plugin: _Plugin, subresource: str | None
) -> None:
    for key in (f"{plugin.driver}/release", f"{_OTHER_DRIVER}/release-phase", "release-phase"):
        with pytest.raises(Forbidden, match=f"on a Node, and not {key}"):
            _patch_node(plugin, _annotation(key), subresource=subresource)


def test_plugin_may_not_write_conditions_of_others(plugin: _Plugin) -> None:
    for kind in ("Ready", f"{_OTHER_DRIVER}/Released"):
        with pytest.raises(Forbidden, match=f"on a Node, and not {kind}"):
            _patch_node(plugin, _condition(kind, status="Unknown"), subresource="status")


@_SUBRESOURCES
def test_plugin_may_not_write_labels(plugin: _Plugin, subresource: str | None) -> None:
    with pytest.raises(Forbidden, match="may not write labels, taints or the like"):
        _patch_node(plugin, {"metadata": {"labels": {"zone": "mine"}}}, subresource=subresource)


def test_plugin_may_not_take_taints_off_its_node(plugin: _Plugin) -> None:
    with pytest.raises(Forbidden, match="may not write labels, taints or the like"):
        _patch_node(plugin, {"spec": {"unschedulable": True}})


def test_plugin_may_not_write_what_its_node_has(plugin: _Plugin) -> None:
    capacity = {"status": {"capacity": {"example.com/gpu": "8"}}}

    with pytest.raises(Forbidden, match="may not write the status of a Node"):
        _patch_node(plugin, capacity, subresource="status")


def test_administrators_write_nodes_as_before(plugin: _Plugin, cluster: Cluster) -> None:
    cluster.kubectl("label", "node", _OWN, "zone=theirs")

    node = json.loads(plugin.kubectl("get", "node", _OWN, "-o", "json"))
    assert node["metadata"]["labels"]["zone"] == "theirs"


def _patch_node(
    plugin: _Plugin, change: Body, *, node: str = _OWN, subresource: str | None = None
) -> None:
    """As the plugin does; kubectl would read the subresource first."""
    with Client(configuration.find(plugin.credentials.kubeconfig)) as client:
        for condition in change.get("status", {}).get("conditions", ()):
            held = client.get(NODES, node)["status"]["conditions"]
            others = [each for each in held if each["type"] != condition["type"]]
            change = {"status": {"conditions": [*others, condition]}}
        client.patch(NODES, node, MergePatch(change), subresource=subresource)


def _annotation(key: str) -> Body:
    return {"metadata": {"annotations": {key: "released"}}}


def _condition(kind: str, *, status: str = "True") -> Body:
    condition = {"type": kind, "status": status, "reason": "Tested", "message": ""}
    return {"status": {"conditions": [condition]}}


@pytest.mark.parametrize("change", [{"allocation": None}, {"devices": []}])
def test_plugin_may_not_change_the_status_of_a_claim(
    plugin: _Plugin, change: Mapping[str, object]
) -> None:
    path = "/apis/resource.k8s.io/v1/namespaces/default/resourceclaims/any/status"

    with pytest.raises(KubectlError, match='cannot update resource "resourceclaims/status"'):
        plugin.kubectl("replace", "--raw", path, "-f", "-", stdin={"status": change})


@pytest.fixture
def claims(plugin: _Plugin) -> Iterator[Mapping[str, str]]:
    """A claim that is allocated to each of the two nodes: its name, by the node."""
    names = {node: f"claim-of-{node}" for node in (_OWN, _OTHER)}
    for node, name in names.items():
        plugin.cluster.apply(
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "ResourceClaim",
                "metadata": {"name": name, "namespace": "default"},
                "spec": {
                    "devices": {
                        "requests": [{"name": "gpu", "exactly": {"deviceClassName": "any"}}]
                    }
                },
            }
        )
        result = {"request": "gpu", "driver": plugin.driver, "pool": node, "device": "gpu-0"}
        allocation = {
            "devices": {"results": [result]},
            "nodeSelector": _selected(node),
        }
        plugin.cluster.kubectl(
            *("patch", "resourceclaim", name, "-n", "default", "--subresource=status"),
            *("--type=merge", "-p", json.dumps({"status": {"allocation": allocation}})),
        )
    yield names
    plugin.cluster.kubectl("delete", "resourceclaim", "-n", "default", *names.values())


def _apply_status(plugin: _Plugin, claim: str, status: Mapping[str, object]) -> str:
    """As the plugin does: by server-side apply, under the driver's name, over what others wrote."""
    body = {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim, "namespace": "default"},
        "status": status,
    }
    return plugin.kubectl(
        *("apply", "--server-side", "--subresource=status", "--validate=false"),
        *("--force-conflicts", f"--field-manager={plugin.driver}", "-f", "-", "-o", "json"),
        stdin=body,
    )


def _of_device(driver: str, pool: str) -> Mapping[str, object]:
    device = {"driver": driver, "pool": pool, "device": "gpu-0", "data": {"uuid": "GPU-1"}}
    return {"devices": [device]}


def test_plugin_writes_what_the_devices_of_claims_of_its_node_are(
    plugin: _Plugin, claims: Mapping[str, str]
) -> None:
    written = _apply_status(plugin, claims[_OWN], _of_device(plugin.driver, _OWN))
    assert json.loads(written)["status"]["devices"][0]["data"] == {"uuid": "GPU-1"}

    taken_back = json.loads(_apply_status(plugin, claims[_OWN], {}))

    assert "devices" not in taken_back["status"]
    assert taken_back["status"]["allocation"]


def test_plugin_may_not_write_the_status_of_claims_of_another_node(
    plugin: _Plugin, claims: Mapping[str, str]
) -> None:
    refusal = 'resource="resourceclaims/driver", verb="\\[arbitrary-node:patch\\]"'

    with pytest.raises(KubectlError, match=refusal):
        _apply_status(plugin, claims[_OTHER], _of_device(plugin.driver, _OTHER))


def test_token_without_a_node_may_not_write_the_status_of_claims(
    plugin: _Plugin, installation: _Installation, claims: Mapping[str, str]
) -> None:
    unbound = plugin.cluster.service_account_credentials(
        installation.namespace, installation.service_account
    )

    with pytest.raises(KubectlError, match="arbitrary-node:patch"):
        _apply_status(
            _Plugin(plugin.cluster, plugin.driver, unbound),
            claims[_OWN],
            _of_device(plugin.driver, _OWN),
        )


@pytest.mark.parametrize(
    "status",
    [
        {"allocation": {"nodeSelector": _selected(_OTHER)}},
        {"reservedFor": [{"resource": "pods", "name": "pod", "uid": "1"}]},
    ],
    ids=["allocation", "reservedFor"],
)
def test_plugin_may_not_change_who_has_a_claim(
    plugin: _Plugin, claims: Mapping[str, str], status: Mapping[str, object]
) -> None:
    """Of its own node, whose status it may write."""
    with pytest.raises(KubectlError, match=r"resourceclaims/binding"):
        _apply_status(plugin, claims[_OWN], status)


def _slice(
    name: str,
    driver: str,
    nodes: Mapping[str, object] = _OF_OWN_NODE,
    *,
    pool: str = _OWN,
    resource_version: str = "",
) -> dict[str, object]:
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceSlice",
        "metadata": {"name": name, "resourceVersion": resource_version},
        "spec": {
            "driver": driver,
            "pool": {"name": pool, "generation": 1, "resourceSliceCount": 1},
            "devices": [{"name": "gpu-0"}],
            **nodes,
        },
    }


def _plugin_with_role(
    cluster: Cluster, namespace: str, account: str, driver: str, rules: list[dict[str, list[str]]]
) -> _Plugin:
    """A plugin on `own-node` with a ServiceAccount and a role of this name."""
    cluster.kubectl("create", "serviceaccount", account, "-n", namespace)
    _bind(cluster, account, rules)
    cluster.assign_pod(namespace, account, service_account=account, node=_OWN)
    credentials = cluster.service_account_credentials(namespace, account, pod=account)
    return _Plugin(cluster, driver, credentials)


def _bind(cluster: Cluster, account: str, rules: list[dict[str, list[str]]]) -> None:
    """Gives a ServiceAccount a ClusterRole of its own."""
    rbac = {"apiVersion": "rbac.authorization.k8s.io/v1"}
    subject = {"kind": "ServiceAccount", "name": account, "namespace": _OTHER_NAMESPACE}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": account}
    cluster.apply(
        {**rbac, "kind": "ClusterRole", "metadata": {"name": account}, "rules": rules},
        {
            **rbac,
            "kind": "ClusterRoleBinding",
            "metadata": {"name": account},
            "roleRef": role,
            "subjects": [subject],
        },
    )
