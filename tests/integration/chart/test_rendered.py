"""The manifests in deploy/ are those of the chart."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from deploy.manifests import DEPLOY, kustomize_files, rendered, single_file
from simulation.kubernetes.cluster import Cluster


def test_files_of_kustomize_are_as_rendered(helm: Path) -> None:
    for name, text in kustomize_files(helm).items():
        assert (DEPLOY / name).read_text() == text, f"{name}: run make manifests"


def test_every_template_is_in_a_file_of_kustomize_or_made_by_value(helm: Path) -> None:
    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    listed = {DEPLOY / name for name in kustomization["resources"]}
    rendered = {DEPLOY / name for name in kustomize_files(helm) if len(name.parts) == 1}

    by_hand = {DEPLOY / "namespace.yaml", *(DEPLOY / "crds").iterdir()}
    assert listed == rendered | by_hand


def test_single_file_has_the_objects_of_kustomize(helm: Path) -> None:
    def identities(texts: list[str]) -> set[tuple[str, str]]:
        bodies = [body for text in texts for body in yaml.safe_load_all(text)]
        return {(body["kind"], body["metadata"]["name"]) for body in bodies}

    kustomization = yaml.safe_load((DEPLOY / "kustomization.yaml").read_text())
    files = [(DEPLOY / name).read_text() for name in kustomization["resources"]]

    single = single_file(helm, image="registry.example.com/carina-dra:v1")

    assert identities([single]) == identities(files)
    assert single.count("image: registry.example.com/carina-dra:v1") == 2
    assert "helm.sh" not in single


@pytest.mark.parametrize(
    ("overlay", "value"),
    [
        ("exclusive", "exclusive=true"),
        ("nvidia_compatible", "driverName=gpu.nvidia.com,sharing.enabled=true"),
        ("sharing", "sharing.enabled=true"),
    ],
)
def test_component_of_kustomize_does_what_the_value_does(
    helm: Path, cluster: Cluster, overlay: str, value: str
) -> None:
    by_kustomize = cluster.kubectl("kustomize", str(Path(__file__).parents[1] / overlay))
    by_value = rendered(helm, value)

    namespace = (DEPLOY / "namespace.yaml").read_text()
    assert _comparable([by_kustomize]) == _comparable([namespace, *by_value.values()])


def _comparable(texts: list[str]) -> dict[str, Any]:
    """The objects by kind and name; lists of named things have no order."""

    def sorted_by_name(value: Any) -> Any:
        if isinstance(value, dict):
            return {key: sorted_by_name(each) for key, each in value.items()}
        if isinstance(value, list):
            members = [sorted_by_name(each) for each in value]
            named = all(isinstance(member, dict) and "name" in member for member in members)
            return sorted(members, key=lambda member: member["name"]) if named else members
        return value

    bodies = [body for text in texts for body in yaml.safe_load_all(text)]
    return {
        f"{body['kind']} {body['metadata']['name']}": sorted_by_name(body)
        for body in bodies
        if body["kind"] != "CustomResourceDefinition"  # generated from types, for both
    }
