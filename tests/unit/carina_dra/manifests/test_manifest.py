"""Objects from files, which are read strictly, and from clusters, which are not."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from carina_dra.manifests.manifest import CLUSTER, ManifestError, ManifestObjects, read_files
from tests.samples.resources import EXAMPLES, example

_CLASS: dict[str, Any] = {
    "apiVersion": "resource.k8s.io/v1",
    "kind": "DeviceClass",
    "metadata": {"name": "gpu"},
}
_DEPLOY = Path(__file__).parents[4] / "deploy"
_NODE: dict[str, Any] = {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "n1"}}


def read(*bodies: Any) -> ManifestObjects:
    """The objects of one file with these documents."""
    objects = ManifestObjects()
    objects.read("a.yaml", yaml.safe_dump_all(bodies).encode())
    return objects


def refusal(*bodies: Any) -> str:
    with pytest.raises(ManifestError) as caught:
        read(*bodies)
    return str(caught.value)


@pytest.mark.parametrize("name", EXAMPLES)
def test_what_an_api_server_writes_is_read(name: str) -> None:
    objects = read(example(name))
    found = [*objects.slices, *objects.classes, *objects.claims, *objects.rules]
    assert len(found) == 1


@pytest.mark.parametrize(
    ("body", "problem"),
    [
        ("just text", "is 'just text', not an object; write kind and metadata"),
        ({"a": 1}, "has no kind; write kind: ResourceClaim, for example"),
        ({"kind": "Node"}, "has no apiVersion; write apiVersion: resource.k8s.io/v1, for example"),
        (
            {**_CLASS, "kind": "DeviceClazz"},
            "kind is 'DeviceClazz', which resource.k8s.io/v1 does not have; did you mean DeviceCl",
        ),
        (
            {**_NODE, "kind": "Nodes"},
            "kind is 'Nodes', which v1 does not have; did you mean Node?",
        ),
        (
            {**_CLASS, "apiVersion": "v1"},
            "apiVersion of DeviceClass is v1; write resource.k8s.io/v1",
        ),
        (
            {**_NODE, "apiVersion": "resource.k8s.io/v1"},
            "apiVersion of Node is resource.k8s.io/v1; write v1",
        ),
        (
            {**_CLASS, "apiVersion": "resource.k8s.io/v1beta1"},
            "apiVersion is resource.k8s.io/v1beta1; write resource.k8s.io/v1",
        ),
        (
            {**_CLASS, "apiVersion": "resources.k8s.io/v1"},
            "apiVersion is resources.k8s.io/v1, which does not exist; did you mean resource.k8s.io",
        ),
        (
            {**_CLASS, "apiVersion": "resource.k8s.io"},
            "apiVersion is resource.k8s.io, which does not exist; did you mean resource.k8s.io/v1?",
        ),
        (
            {**_CLASS, "metadata": {}},
            "DeviceClass: metadata.name: is missing; results and errors name the object by it",
        ),
        (
            {**_CLASS, "spec": {"selector": []}},
            "DeviceClass gpu: spec.selector: is not a field of DeviceClassSpec; did you mean sele",
        ),
        (
            {**_CLASS, "spec": {"selectors": [{}]}},
            "DeviceClass gpu: spec.selectors[0]: lacks cel",
        ),
        ({**_NODE, "metadata": {}}, "Node: metadata.name is missing"),
        (
            {**_NODE, "metadata": {"name": "n1", "labels": {"gpus": 8}}},
            "Node n1: metadata.labels[gpus]: is 8, not a string",
        ),
        ({**_NODE, "label": {}}, "Node n1: label: is not a field of Node; write one of "),
        (
            {**_NODE, "status": {"declaredFeatures": [1]}},
            "Node n1: status.declaredFeatures[0]: is 1, not a string",
        ),
        ({"apiVersion": "v1", "kind": "List"}, "items is None, not a list"),
        ({"apiVersion": "v1", "kind": "List", "item": []}, "item: is not a field of a list; did"),
        ({"apiVersion": "v1", "kind": "List", "items": [7]}, "items[0]: is 7, not an object"),
    ],
)
def test_an_object_that_is_not_valid_is_named_by_file_and_document(body: Any, problem: str) -> None:
    error = refusal(_NODE | {"metadata": {"name": "n0"}}, body)
    separator = ", " if problem.startswith("items[") else ": "
    assert error.startswith(f"a.yaml, document 2{separator}{problem}")


@pytest.mark.parametrize(
    "name", ["claim-pending", "template", "device-class", "slice-of-gpus", "device-taint-rule"]
)
def test_an_object_may_be_given_only_once(name: str) -> None:
    body = example(name)
    error = refusal(_NODE, body, body)
    assert error.startswith(f"a.yaml, document 3: {body['kind']} ")
    assert error.endswith(": is also in a.yaml, document 2; remove one of them")


def test_a_node_may_be_given_only_once() -> None:
    assert "Node n1: is also in a.yaml, document 1" in refusal(_NODE, _NODE)


def test_an_object_of_a_file_may_not_be_in_the_cluster_too() -> None:
    objects = read(_NODE, _CLASS)
    with pytest.raises(ManifestError) as caught:
        objects.add(CLUSTER, _CLASS, strict=False)
    assert str(caught.value) == (
        "a.yaml, document 2: DeviceClass gpu: is also in the cluster; remove it from the file"
    )


def test_a_claim_without_a_namespace_is_in_the_default_one() -> None:
    body = example("claim-pending")
    body["metadata"] = {"name": "a", "namespace": "default"}
    assert "ResourceClaim a: is also in" in refusal(body, {**body, "metadata": {"name": "a"}})


def _objects_of_the_project() -> list[Path]:
    """The files in deploy/, less the chart and those that tell kustomize how to change others."""
    changes = {path for name in ("chart", "values") for path in (_DEPLOY / name).rglob("*.yaml")}
    for path in _DEPLOY.rglob("kustomization.yaml"):
        kustomization = yaml.safe_load(path.read_text())
        patches = [patch["path"] for patch in kustomization.get("patches", ()) if "path" in patch]
        changes |= {path.parent / name for name in patches}
        changes |= {path.parent / name for name in kustomization.get("configurations", ())}
    return sorted(set(_DEPLOY.rglob("*.yaml")) - changes)


@pytest.mark.parametrize("path", _objects_of_the_project(), ids=lambda path: str(path.name))
def test_the_project_s_own_manifests_are_read(path: Path) -> None:
    read_files([path], None)


def test_deep_content_of_a_field_is_named_by_file_and_document() -> None:
    deep = "[" * 900 + "]" * 900
    content = f'{{"apiVersion": "resource.k8s.io/v1", "kind": "DeviceClass", "spec": {deep}}}'
    with pytest.raises(ManifestError, match=r"a\.json, document 1: "):
        ManifestObjects().read("a.json", content.encode())


def test_objects_of_one_name_in_two_namespaces_or_of_two_kinds_are_different() -> None:
    claim, template = example("claim-pending"), example("template")
    elsewhere = {**claim, "metadata": {**claim["metadata"], "namespace": "elsewhere"}}
    template["metadata"] = claim["metadata"]
    assert len(read(claim, elsewhere, template).claims) == 3


@pytest.mark.parametrize(
    ("version", "kind"),
    [
        ("v1", "Pod"),
        ("v1", "Namespace"),
        ("v1", "ConfigMapList"),
        ("apps/v1", "Deployment"),
        ("example.com/v1", "DeviceClass"),
        ("resource.k8s.io/v1alpha3", "ResourcePoolStatusRequest"),
        ("kustomize.config.k8s.io/v1beta1", "Kustomization"),
    ],
)
def test_objects_on_which_allocation_does_not_depend_are_counted(version: str, kind: str) -> None:
    body = {"apiVersion": version, "kind": kind, "any": {"thing": 1}}
    assert read(body, body, _NODE).ignored == {f"{kind} ({version})": 2}


def test_lists_are_read_as_kubectl_writes_them() -> None:
    typed = {key: value for key, value in example("slice-of-gpus").items() if key != "kind"}
    slices = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceSliceList", "items": [typed]}
    mixed = {"apiVersion": "v1", "kind": "List", "metadata": {}, "items": [_NODE, _CLASS]}
    empty = {"apiVersion": "v1", "kind": "NodeList", "items": None}
    objects = read(slices, mixed, empty)
    assert (len(objects.slices), len(objects.nodes), len(objects.classes)) == (1, 1, 1)


def test_an_object_in_a_list_is_named_by_its_index() -> None:
    wrong = {**_CLASS, "spek": {}}
    error = refusal({"apiVersion": "v1", "kind": "List", "items": [_NODE, wrong]})
    assert error.startswith("a.yaml, document 1, items[1]: DeviceClass gpu: spek: is not a field")


def test_an_error_of_the_text_names_the_document() -> None:
    objects = ManifestObjects()
    with pytest.raises(
        ManifestError, match=r"a\.yaml, document 2: is not valid YAML: line 4, column"
    ):
        objects.read("a.yaml", b"kind: Pod\napiVersion: v1\n---\na: b: c\n")


def test_a_file_that_is_no_text_is_named() -> None:
    with pytest.raises(ManifestError, match=r"a\.bin, document 1: line 1: byte 0xFF is not UTF-8"):
        ManifestObjects().read("a.bin", b"\xff\xfe\x00")


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match=f"{tmp_path}: cannot be read: Is a directory"):
        read_files([tmp_path], None)


def test_a_cluster_is_read_with_what_only_a_newer_api_knows() -> None:
    body = {**_CLASS, "newer": 1, "spec": {"selectors": [{"regex": "x"}]}}
    objects = ManifestObjects()
    objects.add(CLUSTER, body, strict=False)
    objects.add(CLUSTER, {**_NODE, "newer": 1}, strict=False)
    assert objects.classes[0].unknown == {"newer": 1}
    assert objects.nodes[0]["newer"] == 1
