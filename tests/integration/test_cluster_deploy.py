"""An API server accepts deploy/ as it is, and every example."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
import yaml

from controller.act.exclusive_taint import RULE
from simulation.kubernetes.cluster import Cluster, KubectlError

_DEPLOY = Path(__file__).parents[2] / "deploy"
_NVIDIA_COMPATIBLE = Path(__file__).parent / "nvidia_compatible"
_EXCLUSIVE = Path(__file__).parent / "exclusive"
_RENAMED = Path(__file__).parent / "renamed"
_EXAMPLES = sorted((_DEPLOY / "examples").glob("*.yaml"))


@pytest.fixture(scope="module", autouse=True)
def installed(cluster: Cluster) -> None:
    """Carina, as an administrator installs it."""
    cluster.install_carina()


def test_manifests_applied_again_change_nothing(cluster: Cluster) -> None:
    again = cluster.kubectl("apply", "-k", str(_DEPLOY)).splitlines()

    assert [line for line in again if not line.endswith(" unchanged")] == []


def test_new_plugin_comes_before_the_old_one_goes(cluster: Cluster) -> None:
    plugin = json.loads(
        cluster.kubectl("get", "-n", "carina-system", "daemonset/carina-kubelet-plugin", "-o=json")
    )

    update = plugin["spec"]["updateStrategy"]
    assert update == {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxSurge": 1, "maxUnavailable": 0},
    }


def test_plugin_runs_as_root_whatever_user_the_image_names(cluster: Cluster) -> None:
    plugin = json.loads(
        cluster.kubectl("get", "-n", "carina-system", "daemonset/carina-kubelet-plugin", "-o=json")
    )

    (container,) = plugin["spec"]["template"]["spec"]["containers"]
    assert container["securityContext"]["runAsUser"] == 0


@pytest.mark.parametrize(
    "workload", ["daemonset/carina-kubelet-plugin", "deployment/carina-controller"]
)
def test_only_labelled_namespaces_reach_the_http_port(cluster: Cluster, workload: str) -> None:
    policy, pods = json.loads(
        cluster.kubectl(
            "get", "-n", "carina-system", "networkpolicy/carina-http", workload, "-o=json"
        )
    )["items"]

    template = pods["spec"]["template"]
    (container,) = template["spec"]["containers"]
    (port,) = container["ports"]
    assert (
        policy["spec"]["podSelector"]["matchLabels"].items()
        <= template["metadata"]["labels"].items()
    )
    assert policy["spec"]["policyTypes"] == ["Ingress"]
    assert policy["spec"]["ingress"] == [
        {
            "from": [{"namespaceSelector": {"matchLabels": {"carina.dev/metrics": "scrape"}}}],
            "ports": [{"port": port["name"], "protocol": "TCP"}],
        }
    ]


@pytest.mark.parametrize(
    "name",
    [
        "carina-kubelet-plugin-own-node-only",
        "carina-kubelet-plugin-own-node-object",
        "carina-kubelet-plugin-pool-of-node",
        "carina-admin-access-required",
        "carina-queue-namespaces",
        "carina-template-namespaces",
        "carina-pod-membership",
        "carina-claim-membership",
    ],
)
def test_server_finds_no_mistake_in_the_admission_policy(cluster: Cluster, name: str) -> None:
    if not cluster.controllers_run:
        pytest.skip("a controller checks the types, and here is only an API server")
    policy = f"validatingadmissionpolicy/{name}"

    cluster.kubectl("wait", policy, "--for=jsonpath={.status.observedGeneration}=1")

    status = json.loads(cluster.kubectl("get", policy, "-o", "json"))["status"]
    assert status["typeChecking"] == {}


def test_bindings_name_their_policies_in_an_overlay_that_renames_them(cluster: Cluster) -> None:
    rendered = _rendered(cluster, _RENAMED)

    names = {(body["kind"], body["metadata"]["name"]) for body in rendered}
    bound = {
        (body["kind"].removesuffix("Binding"), body["spec"]["policyName"])
        for body in rendered
        if body["kind"].endswith("AdmissionPolicyBinding")
    }
    assert bound == {(kind, name) for kind, name in names if kind.endswith("AdmissionPolicy")}


def test_overlay_with_all_gpus_for_queues_is_accepted(cluster: Cluster) -> None:
    rendered = _rendered(cluster, _EXCLUSIVE)

    accepted = cluster.kubectl("apply", "--dry-run=server", "-k", str(_EXCLUSIVE))

    assert len(accepted.splitlines()) == len(rendered)


def test_overlay_with_all_gpus_for_queues_lets_the_controller_taint(cluster: Cluster) -> None:
    rendered = _rendered(cluster, _EXCLUSIVE)

    (deployment,) = [body for body in rendered if body["kind"] == "Deployment"]
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert {"name": "CARINA_EXCLUSIVE", "value": "true"} in container["env"]
    (role,) = [
        body
        for body in rendered
        if body["metadata"].get("labels", {}).get("carina.dev/role") == "controller"
    ]
    taints = [rule for rule in role["rules"] if rule["resources"] == ["devicetaintrules"]]
    writes = {
        (verb, *rule.get("resourceNames", ()))
        for rule in taints
        for verb in rule["verbs"]
        if verb not in ("get", "list", "watch")
    }
    assert writes == {("create",), ("update", RULE), ("delete", RULE)}


def test_controller_runs_where_pod_security_is_restricted(cluster: Cluster) -> None:
    namespace = cluster.create_namespace("restricted-by-pod-security")
    enforced = "pod-security.kubernetes.io/enforce=restricted"
    cluster.kubectl("label", "namespace", namespace, enforced)
    deployed = json.loads(
        cluster.kubectl("get", "-n", "carina-system", "deployment/carina-controller", "-o=json")
    )
    spec = deployed["spec"]["template"]["spec"] | {"serviceAccountName": "default"}
    metadata = {"name": "controller", "namespace": namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}

    cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))

    (container,) = spec["containers"]
    del container["securityContext"]["capabilities"]
    with pytest.raises(KubectlError, match='violates PodSecurity "restricted:latest"'):
        cluster.kubectl("create", "--dry-run=server", "-f", "-", stdin=json.dumps(pod))


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: str(path.stem))
def test_example_is_accepted(cluster: Cluster, example: Path) -> None:
    documents = list(yaml.safe_load_all(example.read_text()))
    for namespace in (found for found in documents if found["kind"] == "Namespace"):
        # A dry run creates none, and the rest of the file needs it.
        cluster.apply(namespace)
        cluster.await_default_service_account(namespace["metadata"]["name"])

    accepted = cluster.kubectl("apply", "--dry-run=server", "-f", str(example)).splitlines()

    assert len(accepted) == len(documents)


@pytest.mark.parametrize("example", _EXAMPLES, ids=lambda path: str(path.stem))
def test_example_says_what_it_is_for(example: Path) -> None:
    assert example.read_text().startswith("# ")


def test_overlay_in_place_of_nvidias_driver_is_accepted(cluster: Cluster) -> None:
    rendered = _rendered(cluster, _NVIDIA_COMPATIBLE)

    accepted = cluster.kubectl("apply", "--dry-run=server", "-k", str(_NVIDIA_COMPATIBLE))

    assert len(accepted.splitlines()) == len(rendered)


def test_overlay_in_place_of_nvidias_driver_has_its_name_everywhere(cluster: Cluster) -> None:
    rendered = _rendered(cluster, _NVIDIA_COMPATIBLE)

    # The descriptions of CustomResourceDefinitions have examples.
    objects = [body for body in rendered if body["kind"] != "CustomResourceDefinition"]
    assert "gpu.carina.dev" not in json.dumps(objects)
    daemon_sets = {
        body["metadata"]["name"]: body["spec"]["template"]["spec"]
        for body in rendered
        if body["kind"] == "DaemonSet"
    }
    assert daemon_sets.keys() == {"carina-kubelet-plugin", "carina-sharing"}
    for pod in daemon_sets.values():
        (container,) = pod["containers"]
        assert {"name": "CARINA_DRIVER_NAME", "value": "gpu.nvidia.com"} in container["env"]
        folder = "/var/lib/kubelet/plugins/gpu.nvidia.com"
        mounts = {mount["name"]: mount["mountPath"] for mount in container["volumeMounts"]}
        volumes = {volume["name"]: volume["hostPath"]["path"] for volume in pod["volumes"]}
        assert mounts.keys() == volumes.keys()
        assert mounts["plugin"] == volumes["plugin"] == folder
    (controller,) = [body for body in rendered if body["kind"] == "Deployment"]
    (container,) = controller["spec"]["template"]["spec"]["containers"]
    assert {"name": "CARINA_DRIVER_NAME", "value": "gpu.nvidia.com"} in container["env"]
    (role,) = [
        body
        for body in rendered
        if body["kind"] == "ClusterRole" and body["metadata"]["name"] == "carina-kubelet-plugin"
    ]
    drivers = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert drivers == [["gpu.nvidia.com"]] * 2  # of slices, and of the status of claims


def test_component_in_place_of_nvidias_driver_needs_no_carina_sharing(
    cluster: Cluster, tmp_path: Path
) -> None:
    deploy = os.path.relpath(_DEPLOY, tmp_path)
    overlay = {"resources": [deploy], "components": [f"{deploy}/nvidia-compatible"]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))

    rendered = _rendered(cluster, tmp_path)

    (daemon_set,) = [body for body in rendered if body["kind"] == "DaemonSet"]
    assert daemon_set["metadata"]["name"] == "carina-kubelet-plugin"


def test_overlay_in_place_of_nvidias_driver_has_its_classes(cluster: Cluster) -> None:
    rendered = _rendered(cluster, _NVIDIA_COMPATIBLE)

    classes = {
        body["metadata"]["name"]: (
            body["spec"].get("extendedResourceName"),
            body["spec"]["selectors"][0]["cel"]["expression"],
        )
        for body in rendered
        if body["kind"] == "DeviceClass"
    }
    selected = "device.driver == 'gpu.nvidia.com' && device.attributes['gpu.nvidia.com'].type == "
    assert classes == {
        "gpu.nvidia.com": ("nvidia.com/gpu", selected + "'gpu'"),
        "mig.nvidia.com": (None, selected + "'mig'"),
    }


def test_component_in_place_of_nvidias_driver_is_refused_by_itself(cluster: Cluster) -> None:
    with pytest.raises(KubectlError, match="no matches for Id DaemonSet"):
        cluster.kubectl("apply", "--dry-run=server", "-k", str(_DEPLOY / "nvidia-compatible"))


def _rendered(cluster: Cluster, kustomization: Path) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(cluster.kubectl("kustomize", str(kustomization))))
