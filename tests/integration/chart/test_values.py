"""What the chart makes of its values, and which it refuses."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import CHART, DEPLOY, NAMESPACE
from tests.integration.chart.conftest import HelmError, Render, run_helm

_VALUES = sorted((DEPLOY / "values").glob("*.yaml"))
_OPENSHIFT = "--api-versions=security.openshift.io/v1"

Body = dict[str, Any]


def of_kind(objects: list[Body], kind: str) -> dict[str, Body]:
    """The objects of a kind, by name."""
    return {body["metadata"]["name"]: body for body in objects if body["kind"] == kind}


def pod_of(body: Body) -> Body:
    """The spec of the pods of a workload."""
    spec: Body = body["spec"]["template"]["spec"]
    return spec


def takes(daemon_set: Body, labels: dict[str, str]) -> bool:
    """Whether a DaemonSet has a pod on a node with these labels, by the rules of Kubernetes."""
    spec = pod_of(daemon_set)
    if not spec["nodeSelector"].items() <= labels.items():
        return False
    terms = (
        spec.get("affinity", {})
        .get("nodeAffinity", {})
        .get("requiredDuringSchedulingIgnoredDuringExecution", {})
        .get("nodeSelectorTerms", [{}])
    )
    return any(
        all(
            (labels.get(each["key"]) in each.get("values", ()))
            if each["operator"] == "In"
            else (labels.get(each["key"]) not in each["values"])
            if each["operator"] == "NotIn"
            else each["key"] in labels
            for each in term.get("matchExpressions", ())
        )
        for term in terms
    )


@pytest.mark.parametrize("file", _VALUES, ids=lambda path: str(path.stem))
def test_documented_values_are_valid(helm: Path, file: Path) -> None:
    run_helm(helm, "lint", "--strict", CHART, "--values", file, "--namespace", NAMESPACE)
    run_helm(helm, "template", "carina", CHART, "--values", file, "--namespace", NAMESPACE)
    assert file.read_text().startswith("# ")


@pytest.mark.parametrize("file", _VALUES, ids=lambda path: str(path.stem))
def test_documented_values_are_in_the_documentation(file: Path) -> None:
    assert f"deploy/values/{file.name}" in (DEPLOY.parent / "docs" / "install.md").read_text()


@pytest.mark.parametrize(
    ("labels", "has"),
    [
        ({}, "carina-kubelet-plugin"),
        ({"pool": "a"}, "carina-kubelet-plugin-first"),
        ({"size": "l"}, "carina-kubelet-plugin-second"),
        ({"pool": "a", "size": "l"}, "carina-kubelet-plugin-first"),
        ({"pool": "b"}, "carina-kubelet-plugin"),
    ],
)
@pytest.mark.parametrize("selection", ["all", "nfd"])
def test_each_node_has_exactly_one_plugin(
    render: Render, labels: dict[str, str], has: str, selection: str
) -> None:
    entries = [
        {"name": "first", "nodeSelector": {"pool": "a"}, "settings": {"device_order": "spread"}},
        {"name": "second", "nodeSelector": {"size": "l"}},
    ]
    objects = render({"kubeletPlugin": {"nodeSettings": entries, "nodeSelection": selection}})

    node = {"kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true", **labels}
    plugins = of_kind(objects, "DaemonSet")
    assert [name for name, body in plugins.items() if takes(body, node)] == [has]


def test_nodes_without_the_labels_of_gpus_have_no_plugin_if_these_are_asked_for(
    render: Render,
) -> None:
    (plugin,) = of_kind(render({"kubeletPlugin": {"nodeSelection": "nfd"}}), "DaemonSet").values()

    assert not takes(plugin, {"kubernetes.io/os": "linux"})


def test_affinity_of_the_values_stays_beside_what_the_chart_adds(render: Render) -> None:
    given = {"key": "zone", "operator": "In", "values": ["z"]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [given]}]
            }
        }
    }
    values = {"affinity": affinity, "nodeSelection": "nfd"}
    (plugin,) = of_kind(render({"kubeletPlugin": values}), "DaemonSet").values()

    node = {"kubernetes.io/os": "linux", "nvidia.com/gpu.present": "true"}
    assert takes(plugin, {**node, "zone": "z"})
    assert not takes(plugin, node)
    assert not takes(plugin, {"kubernetes.io/os": "linux", "zone": "z"})


def test_settings_of_nodes_are_added_to_those_of_all(render: Render) -> None:
    entry = {"name": "big", "nodeSelector": {"big": "1"}, "settings": {"device_order": "spread"}}
    objects = render(
        {"kubeletPlugin": {"settings": {"host_memory_mib": 1000000}, "nodeSettings": [entry]}}
    )

    files = of_kind(objects, "ConfigMap")
    assert files["carina-kubelet-plugin"]["data"]["settings.yaml"] == "host_memory_mib: 1000000\n"
    assert files["carina-kubelet-plugin-big"]["data"]["settings.yaml"] == (
        "device_order: spread\nhost_memory_mib: 1000000\n"
    )


def test_pods_change_with_their_settings_and_only_they(render: Render) -> None:
    def templates(settings: Body) -> dict[str, Body]:
        objects = render({"kubeletPlugin": {"settings": settings}})
        workloads = {**of_kind(objects, "DaemonSet"), **of_kind(objects, "Deployment")}
        return {name: body["spec"]["template"] for name, body in workloads.items()}

    before, after = templates({"device_order": "spread"}), templates({"device_order": "binpack"})

    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"carina-kubelet-plugin"}


def test_openshift_may_run_the_privileged_plugin_and_chooses_the_controller_s_user(
    render: Render,
) -> None:
    objects = render({}, _OPENSHIFT)

    (binding,) = [
        body
        for body in of_kind(objects, "RoleBinding").values()
        if body["roleRef"]["name"] == "system:openshift:scc:privileged"
    ]
    assert [each["name"] for each in binding["subjects"]] == ["carina-kubelet-plugin"]
    (controller,) = of_kind(objects, "Deployment").values()
    assert "runAsUser" not in pod_of(controller)["securityContext"]


def test_without_the_controller_nothing_waits_for_it(render: Render) -> None:
    objects = render({"controller": {"enabled": False}})

    assert not of_kind(objects, "Deployment")
    assert not of_kind(objects, "MutatingAdmissionPolicy")
    policies = of_kind(objects, "ValidatingAdmissionPolicy")
    assert "carina-kubelet-plugin-own-node-only" in policies
    assert "scheduling.carina.dev" not in str(policies)


def test_digest_is_used_instead_of_the_tag(render: Render) -> None:
    digest = f"sha256:{'a' * 64}"
    objects = render({"image": {"repository": "r.example.com/c", "tag": "v1", "digest": digest}})

    images = {
        container["image"]
        for kind in ("DaemonSet", "Deployment", "Job")
        for body in of_kind(objects, kind).values()
        for container in pod_of(body)["containers"]
    }
    assert images == {f"r.example.com/c@{digest}"}


def test_no_hook_has_another_image(render: Render) -> None:
    objects = render({"readyMade": {"queues": True}, "uninstall": {"release": True}})

    pods = [pod_of(body) for body in of_kind(objects, "Job").values()]
    pods += [body["spec"] for body in of_kind(objects, "Pod").values()]
    assert len(pods) == 3
    assert {each["image"] for pod in pods for each in pod["containers"]} == {"carina-dra:latest"}


def test_common_labels_and_annotations_are_on_every_object(render: Render) -> None:
    objects = render({"commonLabels": {"team": "x"}, "commonAnnotations": {"contact": "y"}})

    lasting = [b for b in objects if "helm.sh/hook" not in b["metadata"].get("annotations", {})]
    definitions = [body for body in lasting if body["kind"] == "CustomResourceDefinition"]
    assert all(body["metadata"]["labels"]["team"] == "x" for body in lasting)
    assert all(
        body["metadata"]["annotations"]["contact"] == "y"
        for body in lasting
        if body not in definitions
    )


def test_definitions_stay_unless_they_are_not_to_be_kept(render: Render) -> None:
    def policies(values: Body) -> set[str | None]:
        return {
            body["metadata"].get("annotations", {}).get("helm.sh/resource-policy")
            for body in of_kind(render(values), "CustomResourceDefinition").values()
        }

    assert policies({}) == {"keep"}
    assert policies({"crds": {"keep": False}}) == {None}
    assert policies({"crds": {"install": False}}) == set()


def test_names_that_yaml_reads_as_numbers_stay_names(render: Render) -> None:
    entry = {"name": "80", "nodeSelector": {"memory": "80"}, "settings": {"device_order": "spread"}}
    objects = render(
        {
            "nameOverride": "2",
            "kubeletPlugin": {"nodeSettings": [entry]},
            "queues": [{"name": "100", "spec": {}}],
        },
        "--namespace=1000",
    )

    (queue,) = yaml.safe_load_all(
        of_kind(objects, "ConfigMap")["carina-2-queues"]["data"]["queues.yaml"]
    )
    pool = of_kind(objects, "DaemonSet")["carina-2-kubelet-plugin-80"]
    labels = pool["spec"]["selector"]["matchLabels"]
    assert queue["metadata"]["name"] == "100"
    assert labels["carina.dev/node-settings"] == "80"
    assert labels["app.kubernetes.io/name"] == "2"
    assert pool["spec"]["template"]["metadata"]["labels"].items() >= labels.items()
    assert {body["metadata"].get("namespace", "1000") for body in objects} == {"1000"}


def test_controller_is_found_by_the_lease_of_its_name_whatever_its_account(render: Render) -> None:
    objects = render(
        {"controller": {"serviceAccount": {"name": "boss"}}, "uninstall": {"release": True}}
    )

    (container,) = pod_of(of_kind(objects, "Deployment")["carina-controller"])["containers"]
    (lease,) = (each for each in container["env"] if each["name"] == "CARINA_LEASE_NAME")
    command = pod_of(of_kind(objects, "Job")["carina-uninstall"])["containers"][0]["command"]
    roles = of_kind(objects, "Role")
    readable = {
        name: [
            rule["resourceNames"]
            for rule in roles[name]["rules"]
            if rule["resources"] == ["leases"] and "get" in rule["verbs"]
        ]
        for name in ("carina-controller", "carina-uninstall")
    }
    assert lease["value"] == "carina-controller"
    assert command[-1] == f"{NAMESPACE}/carina-controller"
    assert set(map(str, readable.values())) == {"[['carina-controller']]"}


def test_pods_can_have_no_time_to_end(render: Render) -> None:
    objects = render({"controller": {"terminationGracePeriodSeconds": 0}})

    (controller,) = of_kind(objects, "Deployment").values()
    assert pod_of(controller)["terminationGracePeriodSeconds"] == 0


@pytest.mark.parametrize(
    ("values", "message"),
    [
        ({"controler": {}}, r"additional properties 'controler' not allowed"),
        (
            {"kubeletPlugin": {"settings": {"device_ordr": "spread"}}},
            r"'/kubeletPlugin/settings': additional properties 'device_ordr'",
        ),
        (
            {"kubeletPlugin": {"settings": {"device_order": "best"}}},
            r"'/kubeletPlugin/settings/device_order': value must be one of",
        ),
        (
            {"kubeletPlugin": {"settings": {"device_kinds": "gpu,shares"}}},
            r"'/kubeletPlugin/settings/device_kinds': 'anyOf' failed",
        ),
        (
            {
                "kubeletPlugin": {
                    "settings": {"device_kinds_by_gpu": [{"index": 0, "kinds": ["share"]}]}
                }
            },
            r"'/kubeletPlugin/settings/device_kinds_by_gpu/0': 'anyOf' failed",
        ),
        (
            {"kubeletPlugin": {"settings": {"least_share": 7}}},
            r"'/kubeletPlugin/settings/least_share': 'anyOf' failed",
        ),
        (
            {"kubeletPlugin": {"settings": {"cdi_hook": "nvidia-cdi-hook"}}},
            r"'/kubeletPlugin/settings/cdi_hook': 'anyOf' failed",
        ),
        (
            {"controller": {"settings": {"placement": "best"}}},
            r"'/controller/settings/placement': 'best' does not match",
        ),
        (
            {"controller": {"settings": {"actions": "reclaim,evict"}}},
            r"'/controller/settings/actions': 'anyOf' failed",
        ),
        (
            {"kubeletPlugin": {"settings": {"driver_name": "x"}}},
            r"additional properties 'driver_name'",
        ),
        (
            {"kubeletPlugin": {"nodeSettings": [{"name": "a", "nodeSelector": {}}]}},
            r"nodeSettings/0/nodeSelector': minProperties",
        ),
        (
            {"kubeletPlugin": {"nodeSettings": [{"name": "default", "nodeSelector": {"a": "b"}}]}},
            r'"default" is the name of the nodes of another entry',
        ),
        (
            {
                "kubeletPlugin": {
                    "nodeSettings": [
                        {"name": "a", "nodeSelector": {"a": "b"}},
                        {"name": "c", "nodeSelector": {"a": "b"}},
                    ]
                }
            },
            r'entry "c" selects the nodes of an earlier entry',
        ),
        (
            {"queues": [{"name": "a", "spec": {"resources": [{"gpus": {}, "qouta": 1}]}}]},
            r"'/queues/0/spec/resources/0': additional properties 'qouta'",
        ),
        (
            {"kubeletPlugin": {"kubeletDir": "/a, b"}},
            r"'/kubeletPlugin/kubeletDir': '/a, b' does not match",
        ),
        ({"nameOverride": "My GPUs"}, r"'/nameOverride': 'My GPUs' does not match"),
        ({"queues": [{"name": "a: b", "spec": {}}]}, r"'/queues/0/name': 'a: b' does not match"),
        (
            {"commonLabels": {"app.kubernetes.io/name": "x"}},
            r"commonLabels: app.kubernetes.io/name is set by the chart itself",
        ),
        (
            {"controller": {"podLabels": {"app.kubernetes.io/component": "x"}}},
            r"controller.podLabels: app.kubernetes.io/component is set by the chart itself",
        ),
        ({"exclusive": True, "controller": {"enabled": False}}, r"set controller.enabled"),
        ({"readyMade": {"queues": True}, "controller": {"enabled": False}}, r"need the controller"),
    ],
)
def test_bad_values_are_refused_with_their_path(render: Render, values: Body, message: str) -> None:
    with pytest.raises(HelmError, match=message):
        render(values)


def test_namespace_default_is_refused(render: Render) -> None:
    with pytest.raises(HelmError, match="add --namespace carina-system --create-namespace"):
        render({}, "--namespace=default")


def test_values_of_a_chart_that_contains_this_one_are_accepted(render: Render) -> None:
    assert render({"global": {"anything": {"goes": True}}})


def test_nothing_is_tested_that_exclusive_mode_does_not_allow(render: Render) -> None:
    assert of_kind(render({}), "ResourceClaim")
    assert not of_kind(render({"exclusive": True}), "ResourceClaim")
