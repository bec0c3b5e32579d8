"""The manifests in deploy/ are those of the chart."""

from pathlib import Path

import yaml

from deploy.manifests import DEPLOY, kustomize_files, single_file


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
