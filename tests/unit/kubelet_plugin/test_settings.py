"""Settings: defaults below file below environment below flags, and mistakes by their names."""

from pathlib import Path

import pytest

from kubelet_plugin.settings import Settings, SettingsError, load


def loaded(*flags: str, **environment: str) -> Settings:
    return load(flags, environment, program="plugin", version="1")


def test_flags_beat_the_environment_which_beats_the_file(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node_name: file\ndriver_name: file.example.com\npoll_seconds: 1\n")
    settings = loaded(
        *("--config", str(file), "--node-name", "flag"),
        CARINA_NODE_NAME="environment",
        CARINA_DRIVER_NAME="environment.example.com",
    )
    assert settings.node_name == "flag"
    assert settings.driver_name == "environment.example.com"
    assert settings.poll_seconds == 1


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ((), "node_name is not set; give --node-name or CARINA_NODE_NAME"),
        (("--node-name", "Node"), "node_name is 'Node', set by the flags"),
        (("--node-name", "n", "--driver-root", "usr"), "must be an absolute path"),
        (("--node-name", "n", "--http-address", "8080"), "must be HOST:PORT"),
        (("--node-name", "n", "--kubelet-root", "/" + "x" * 90), "longer than the 107 bytes"),
    ],
)
def test_mistakes_are_named(flags: tuple[str, ...], problem: str) -> None:
    with pytest.raises(SettingsError) as caught:
        loaded(*flags)
    assert problem in str(caught.value)


def test_an_unknown_name_in_the_file_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text("node_nam: n\n")
    with pytest.raises(SettingsError, match=r"node_nam, set by .*settings\.yaml, is not a setting"):
        loaded("--node-name", "n", "--config", str(file))


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"none\.yaml cannot be read"):
        loaded("--node-name", "n", "--config", str(tmp_path / "none.yaml"))


def test_variables_that_kubernetes_makes_of_services_are_left_alone() -> None:
    assert loaded(CARINA_NODE_NAME="n", CARINA_CONTROLLER_SERVICE_HOST="10.0.0.1").node_name == "n"


@pytest.mark.parametrize(
    ("uid", "dra", "registration"),
    [
        (None, "dra.sock", "gpu.carina.dev-reg.sock"),
        ("1f", "dra-1f.sock", "gpu.carina.dev-1f-reg.sock"),
    ],
)
def test_sockets_are_named_by_the_pod(uid: str | None, dra: str, registration: str) -> None:
    settings = loaded("--node-name", "n", *(("--pod-uid", uid) if uid else ()))
    assert settings.dra_socket == Path("/var/lib/kubelet/plugins/gpu.carina.dev") / dra
    assert settings.registration_socket == Path("/var/lib/kubelet/plugins_registry") / registration
