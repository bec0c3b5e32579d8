import base64
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from carina_dra.kube.connection import (
    ClientCertificate,
    ConfigurationError,
    Connection,
    SystemTrust,
    TrustAnyone,
    TrustFile,
)
from carina_dra.kube.kubeconfig import from_kubeconfig


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


def connection(
    directory: Path, *, cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None
) -> Connection:
    path = directory / "config"
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": "c", "cluster": {"server": "https://api.example.com:6443/", **(cluster or {})}}
        ],
        "users": [{"name": "u", "user": user or {}}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    }
    path.write_text(yaml.safe_dump(config))
    return from_kubeconfig(path)


def test_a_server_without_more_is_trusted_as_the_system_does(tmp_path: Path) -> None:
    found = connection(tmp_path)
    assert found.server == "https://api.example.com:6443"
    assert found.tls.trust == SystemTrust()
    assert found.tls.client_certificate is None
    assert found.credentials.authorization() is None
    assert found.proxy is None


def test_authority_and_certificate_may_be_data(tmp_path: Path) -> None:
    def data(text: str) -> str:
        return base64.b64encode(text.encode()).decode()

    found = connection(
        tmp_path,
        cluster={"certificate-authority-data": data("authority")},
        user={"client-certificate-data": data("certificate"), "client-key-data": data("key")},
    )
    assert isinstance(found.tls.trust, TrustFile)
    assert found.tls.trust.path.read_text() == "authority"
    match found.tls.client_certificate:
        case ClientCertificate(certificate, key):
            assert (certificate.read_text(), key.read_text()) == ("certificate", "key")
        case None:
            pytest.fail("no client certificate")


def test_files_are_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text("authority")
    found = connection(tmp_path, cluster={"certificate-authority": "ca.pem"})
    assert found.tls.trust == TrustFile(tmp_path / "ca.pem")


def test_verification_can_be_turned_off(tmp_path: Path) -> None:
    found = connection(tmp_path, cluster={"insecure-skip-tls-verify": True})
    assert found.tls.trust == TrustAnyone()


def test_the_server_may_have_another_name_and_be_behind_a_proxy(tmp_path: Path) -> None:
    proxy = "http://proxy.example.com:3128"
    found = connection(tmp_path, cluster={"tls-server-name": "kube", "proxy-url": proxy})
    assert found.tls.server_name == "kube"
    assert found.proxy == proxy


def test_a_token(tmp_path: Path) -> None:
    found = connection(tmp_path, user={"token": "secret"})
    assert found.credentials.authorization() == "Bearer secret"
    assert not found.credentials.renew()


def test_a_program_gives_the_token_and_a_new_one_when_that_is_refused(tmp_path: Path) -> None:
    count = tmp_path / "count"
    program = tmp_path / "plugin.py"
    program.write_text(
        "import json, pathlib\n"
        f"count = pathlib.Path({str(count)!r})\n"
        "n = int(count.read_text()) + 1 if count.exists() else 1\n"
        "count.write_text(str(n))\n"
        "print(json.dumps({'apiVersion': 'client.authentication.k8s.io/v1',"
        " 'kind': 'ExecCredential', 'status': {'token': f'token-{n}'}}))\n"
    )
    plugin = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": sys.executable,
        "args": [str(program)],
        "interactiveMode": "Never",
    }
    credentials = connection(tmp_path, user={"exec": plugin}).credentials
    assert credentials.authorization() == "Bearer token-1"
    assert credentials.authorization() == "Bearer token-1"
    assert credentials.renew()
    assert credentials.authorization() == "Bearer token-2"


def test_a_proxy_of_the_environment_is_used_unless_it_is_told_not_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example.com:3128")
    assert connection(tmp_path).proxy == "http://proxy.example.com:3128"
    monkeypatch.setenv("NO_PROXY", "api.example.com")
    assert connection(tmp_path).proxy is None


def test_a_file_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=str(tmp_path / "missing")):
        from_kubeconfig(tmp_path / "missing")


def test_a_file_that_is_no_yaml_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "config"
    path.write_text("{")
    with pytest.raises(ConfigurationError, match="kubeconfig"):
        from_kubeconfig(path)


@pytest.mark.parametrize("content", ["text", "[]", "1", "{clusters: 1}", "a: [", "{contexts: {}}"])
def test_a_file_that_is_no_kubeconfig_is_an_error_in_one_line(tmp_path: Path, content: str) -> None:
    path = tmp_path / "config"
    path.write_text(content)
    with pytest.raises(ConfigurationError, match=f"kubeconfig {path}: ") as caught:
        from_kubeconfig(path)
    assert "\n" not in str(caught.value)


def test_the_files_that_the_environment_names_are_named_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/one:{tmp_path}/two")
    with pytest.raises(
        ConfigurationError, match=f"kubeconfig {tmp_path}/one:{tmp_path}/two: there is no such file"
    ):
        from_kubeconfig()


def test_without_a_name_the_default_file_is_named_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("KUBECONFIG", "")
    with pytest.raises(
        ConfigurationError, match=r"kubeconfig ~/\.kube/config: there is no such file"
    ):
        from_kubeconfig()


def test_a_file_that_cannot_be_read_is_named_in_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match=f"kubeconfig {tmp_path}: cannot be read: Is a dir"
    ):
        from_kubeconfig()


def test_the_environment_counts_when_it_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connection(tmp_path)
    monkeypatch.setenv("KUBECONFIG", f"{tmp_path}/missing:{tmp_path}/config")
    assert from_kubeconfig().server == "https://api.example.com:6443"
