"""Settings of a process: their precedence, and errors that name the setting."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pytest
from pydantic import Field

from carina_dra.process.settings import FILE_ONLY, ClusterSettings, SettingsError, load


class Settings(ClusterSettings):
    """A process with one required setting, one with a default, and one for the file alone."""

    DESCRIPTION = "A process."

    node_name: str = Field(pattern=r"^[a-z]+\Z", description="name of the node")
    dry_run: bool = Field(default=False, description="whether nothing is written")
    poll_seconds: float = Field(5.0, gt=0, description="seconds between reads, 100 % of them")
    topologies: Annotated[Mapping[str, str], FILE_ONLY] = Field({}, description="levels by name")


def loaded(*flags: str, **environment: str) -> Settings:
    return load(Settings, flags, environment, program="process", version="1")


def written(folder: Path, text: str) -> tuple[str, str]:
    """The flag for a settings file with this text."""
    file = folder / "settings.yaml"
    file.write_text(text)
    return "--config", str(file)


def test_flags_override_the_environment_which_overrides_the_file(tmp_path: Path) -> None:
    settings = loaded(
        *written(tmp_path, "node_name: file\ndriver_name: file.example.com\npoll_seconds: 1\n"),
        *("--node-name", "flag"),
        CARINA_NODE_NAME="environment",
        CARINA_DRIVER_NAME="environment.example.com",
    )
    assert settings.node_name == "flag"
    assert settings.driver_name == "environment.example.com"
    assert settings.poll_seconds == 1


def test_a_setting_without_value_and_default_is_named_with_its_spellings() -> None:
    with pytest.raises(SettingsError) as caught:
        loaded()
    assert str(caught.value) == "node_name is not set; set --node-name or CARINA_NODE_NAME"


def test_an_invalid_value_is_named_with_its_source() -> None:
    with pytest.raises(SettingsError, match=r"poll_seconds is '0', set by the environment: .* 0"):
        loaded("--node-name", "n", CARINA_POLL_SECONDS="0")


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"node_nam, set by .*settings\.yaml, is not a setting"):
        loaded("--node-name", "n", *written(tmp_path, "node_nam: n\n"))


def test_an_abbreviated_flag_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        loaded("--node-name", "n", "--driver", "gpu.example.com")
    assert "unrecognized arguments: --driver" in capsys.readouterr().err


def test_variables_that_kubernetes_adds_for_services_are_ignored() -> None:
    assert loaded(CARINA_NODE_NAME="n", CARINA_CONTROLLER_SERVICE_HOST="10.0.0.1").node_name == "n"


def test_an_empty_file_sets_nothing(tmp_path: Path) -> None:
    assert loaded("--node-name", "n", *written(tmp_path, "")) == loaded("--node-name", "n")


@pytest.mark.parametrize("text", ["- node_name\n", "node_name\n"])
def test_a_file_that_is_no_table_is_refused(tmp_path: Path, text: str) -> None:
    with pytest.raises(SettingsError, match="must contain `name: value` lines"):
        loaded(*written(tmp_path, text))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml cannot be read"):
        loaded("--node-name", "n", "--config", str(tmp_path / "none.yaml"))


def test_a_setting_for_the_file_alone_is_read_there(tmp_path: Path) -> None:
    settings = loaded("--node-name", "n", *written(tmp_path, "topologies: {rack: example.com}\n"))
    assert settings.topologies == {"rack": "example.com"}


def test_a_setting_for_the_file_alone_is_no_flag_and_no_variable(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert loaded("--node-name", "n", CARINA_TOPOLOGIES="rack").topologies == {}
    with pytest.raises(SystemExit):
        loaded("--node-name", "n", "--topologies", "rack")
    assert "unrecognized arguments: --topologies" in capsys.readouterr().err


def test_help_has_every_flag_with_its_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        loaded("--help")
    shown = " ".join(capsys.readouterr().out.split())
    assert "A process." in shown
    assert "--poll-seconds NUMBER seconds between reads, 100 % of them [5.0]" in shown
    assert "--node-name TEXT name of the node" in shown
    assert "--dry-run true|false whether nothing is written [false]" in shown
    assert "--http-address HOST:PORT HOST:PORT that serves" in shown
    assert "--kubeconfig PATH kubeconfig file" in shown


@pytest.mark.parametrize("value", ["off", "'off'", "no", "false"])
def test_the_http_endpoint_can_be_turned_off_in_the_file(tmp_path: Path, value: str) -> None:
    settings = loaded("--node-name", "n", *written(tmp_path, f"http_address: {value}\n"))
    assert settings.http_address == "off"


@pytest.mark.parametrize("address", ["0.0.0.0:8080", "[::]:8080", "[fd00::1]:0", "off"])
def test_addresses_of_the_http_endpoint(address: str) -> None:
    assert loaded("--node-name", "n", "--http-address", address).http_address == address


@pytest.mark.parametrize(
    ("address", "problem"),
    [
        ("8080", "must be HOST:PORT"),
        ("::1:8080", "must be HOST:PORT"),
        ("[::1]:70000", "must be HOST:PORT"),
        ("localhost:80", "not appear to be an IPv4 or"),
    ],
)
def test_what_is_no_address_of_the_http_endpoint(address: str, problem: str) -> None:
    with pytest.raises(SettingsError, match=problem):
        loaded("--node-name", "n", "--http-address", address)


def test_the_default_address_serves_ipv4_and_ipv6() -> None:
    assert loaded("--node-name", "n").http_address == "[::]:8080"
    description = Settings.model_fields["http_address"].description
    assert "serves IPv4 and IPv6" in str(description)
