"""The settings that deploy/ gives the controller."""

import re
from pathlib import Path
from typing import Any

import yaml

from carina_dra.process.settings import ENVIRONMENT_PREFIX, load
from controller import names
from controller.settings import Settings

_DEPLOY = Path(__file__).parents[3] / "deploy"


def documents(name: str) -> dict[str, dict[str, Any]]:
    """The objects of a manifest, by kind."""
    return {body["kind"]: body for body in yaml.safe_load_all((_DEPLOY / name).read_text())}


def loaded(file: Path) -> Settings:
    environment = {"CARINA_IDENTITY": "pod"}
    return load(Settings, ["--config", str(file)], environment, program="controller", version="1")


def container() -> dict[str, Any]:
    deployment = documents("controller.yaml")["Deployment"]
    (found,) = deployment["spec"]["template"]["spec"]["containers"]
    return dict(found)


def test_every_variable_is_a_setting() -> None:
    names = {variable["name"] for variable in container()["env"]} - {"PYTHONOPTIMIZE"}

    settings = {ENVIRONMENT_PREFIX + name.upper() for name in Settings.model_fields}
    assert names <= settings
    assert names >= {"CARINA_IDENTITY", "CARINA_LEASE_NAMESPACE"}


def test_the_settings_file_is_the_one_that_is_mounted(tmp_path: Path) -> None:
    content = documents("controller.yaml")["ConfigMap"]["data"]
    (mount,) = container()["volumeMounts"]
    assert container()["command"][1:] == ["--config", f"{mount['mountPath']}/{next(iter(content))}"]

    file = tmp_path / "settings.yaml"
    (text,) = content.values()
    file.write_text(text)
    assert loaded(file).topologies == {}


def test_the_topology_in_the_settings_file_can_be_uncommented(tmp_path: Path) -> None:
    (text,) = documents("controller.yaml")["ConfigMap"]["data"].values()
    file = tmp_path / "settings.yaml"
    file.write_text(re.sub("^# ", "", text, flags=re.MULTILINE))

    assert list(loaded(file).topologies) == ["fabric"]


def test_the_role_permits_the_lease_of_the_settings() -> None:
    role = documents("controller-permissions.yaml")["Role"]
    (variable,) = (each for each in container()["env"] if each["name"] == "CARINA_LEASE_NAME")
    pod = documents("controller.yaml")["Deployment"]["spec"]["template"]

    assert variable["valueFrom"] == {"fieldRef": {"fieldPath": "spec.serviceAccountName"}}
    names = [rule["resourceNames"] for rule in role["rules"] if "resourceNames" in rule]
    assert names == [[pod["spec"]["serviceAccountName"]]]


def test_every_annotation_of_pods_is_protected() -> None:
    """The policy names them one by one; a fence needs no protection, since every write is one."""
    text = (_DEPLOY / "queue-membership.yaml").read_text()
    known = {value for name, value in vars(names).items() if name.endswith("_ANNOTATION")}
    unprotected = {each for each in known if f"'{each}'" not in text}
    assert unprotected == {names.FENCE_ANNOTATION}
