from collections.abc import Callable
from pathlib import Path

import pytest

from carina_dra.kube.connection import ConfigurationError, Tls, TrustFile
from carina_dra.kube.service_account import TokenFile, from_service_account

IN_A_POD = {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    (tmp_path / "ca.crt").write_text("certificate")
    (tmp_path / "token").write_text("first\n")
    return tmp_path


def clock(*times: float) -> Callable[[], float]:
    remaining = list(times)
    return lambda: remaining.pop(0)


def test_a_pod_is_connected_by_its_service_account(directory: Path) -> None:
    connection = from_service_account(directory, environment=IN_A_POD)
    assert connection.server == "https://10.0.0.1:443"
    assert connection.tls == Tls(TrustFile(directory / "ca.crt"))
    assert connection.credentials.authorization() == "Bearer first"


def test_an_ipv6_address_is_bracketed(directory: Path) -> None:
    environment = IN_A_POD | {"KUBERNETES_SERVICE_HOST": "fd00::1"}
    connection = from_service_account(directory, environment=environment)
    assert connection.server == "https://[fd00::1]:443"


@pytest.mark.parametrize(
    ("missing", "message"),
    [("token", "service account token: .*token"), ("ca.crt", "automountServiceAccountToken")],
)
def test_what_is_missing_is_named(directory: Path, missing: str, message: str) -> None:
    (directory / missing).unlink()
    with pytest.raises(ConfigurationError, match=message):
        from_service_account(directory, environment=IN_A_POD)


def test_outside_of_a_pod_the_error_says_what_to_do(directory: Path) -> None:
    with pytest.raises(ConfigurationError, match="give a kubeconfig file"):
        from_service_account(directory, environment={})


def test_an_empty_token_is_none(directory: Path) -> None:
    (directory / "token").write_text("\n")
    with pytest.raises(ConfigurationError, match="is empty"):
        TokenFile(directory / "token")


class TestTokenFile:
    def test_is_read_again_after_a_minute(self, directory: Path) -> None:
        path = directory / "token"
        token = TokenFile(path, clock=clock(0, 60, 61, 61, 62))
        path.write_text("second")
        assert [token.authorization() for _ in range(3)] == [
            "Bearer first",
            "Bearer second",
            "Bearer second",
        ]

    def test_is_read_again_when_it_is_refused(self, directory: Path) -> None:
        path = directory / "token"
        token = TokenFile(path, clock=lambda: 0.0)
        assert not token.renew()
        path.write_text("second")
        assert token.renew()
        assert token.authorization() == "Bearer second"

    def test_that_is_gone_leaves_the_last_token(self, directory: Path) -> None:
        path = directory / "token"
        token = TokenFile(path, clock=clock(0, 100, 100, 101))
        path.unlink()
        assert token.authorization() == "Bearer first"
        assert token.authorization() == "Bearer first"
