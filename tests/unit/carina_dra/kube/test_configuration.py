"""Where the connection comes from: the file that is given, the pod, or the user's own files."""

import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from carina_dra.kube.configuration import find
from carina_dra.kube.connection import ConfigurationError

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


def kubeconfig(path: Path, server: str) -> Path:
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": {"server": server}}],
        "users": [{"name": "u", "user": {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return path


@pytest.mark.parametrize("environment", [{}, IN_A_POD], ids=["elsewhere", "in a pod"])
def test_the_file_that_is_given_comes_first(tmp_path: Path, environment: dict[str, str]) -> None:
    path = kubeconfig(tmp_path / "config", "https://given.example.com")
    assert find(path, environment=environment).server == "https://given.example.com"


def test_a_pod_uses_its_service_account() -> None:
    with pytest.raises(ConfigurationError, match="is automountServiceAccountToken off"):
        find(None, environment=IN_A_POD)


def test_pod_whose_user_names_a_kubeconfig_uses_it(tmp_path: Path) -> None:
    path = kubeconfig(tmp_path / "config", "https://named.example.com")
    environment = {**IN_A_POD, "KUBECONFIG": str(path)}
    assert find(None, environment=environment).server == "https://named.example.com"


def test_elsewhere_it_is_the_files_that_kubeconfig_names(tmp_path: Path) -> None:
    program = """
from carina_dra.kube import configuration
print(configuration.find(None).server)
"""
    kubeconfig(tmp_path / "config", "https://mine.example.com")
    environment = {"KUBECONFIG": str(tmp_path / "config"), "PYTHONPATH": ":".join(sys.path)}
    found = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    assert found.stdout == "https://mine.example.com\n"


def test_a_pod_does_not_load_the_official_client() -> None:
    program = """
import sys
from carina_dra.kube import client, configuration
from carina_dra.kube.connection import ConfigurationError
try:
    configuration.find(None, environment={"KUBERNETES_SERVICE_HOST": "h"})
except ConfigurationError:
    sys.exit("kubernetes" in sys.modules)
"""
    subprocess.run([sys.executable, "-c", program], check=True)
