"""The plugin's settings: defaults, below a file, below the environment, below flags.

Every setting has one name in three spellings: `driver_root` in the file, `CARINA_DRIVER_ROOT` in
the environment, `--driver-root` as a flag. In the file and among the flags a name that is not a
setting is refused, since a setting with a spelling mistake is one that somebody believes in; in the
environment it is left alone, since Kubernetes itself puts names of Services there.
"""

import argparse
from base64 import urlsafe_b64encode
from collections.abc import Mapping, Sequence
from hashlib import sha256
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.functional_validators import AfterValidator, BeforeValidator

ENVIRONMENT_PREFIX = "CARINA_"
_DNS_LABELS = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z"
_SOCKET_PATH_BYTES = 107


class SettingsError(ValueError):
    """Settings that cannot be used: names each setting, where it was set, and what is allowed."""


def _absolute(path: Path) -> Path:
    if not path.is_absolute():
        raise ValueError("must be an absolute path")
    return path


def _http_address(text: str) -> str:
    if text == "off":
        return text
    host, separator, port = text.rpartition(":")
    bracketed = host.startswith("[") and host.endswith("]")
    if not separator or not port.isdecimal() or int(port) > 65535 or (":" in host) != bracketed:
        raise ValueError("must be HOST:PORT, such as 0.0.0.0:8080 or [::]:8080, or off")
    ip_address(host.strip("[]"))
    return text


def _off(value: object) -> object:
    return "off" if value is False else value  # YAML reads an unquoted off as False


AbsolutePath = Annotated[Path, AfterValidator(_absolute)]
HttpAddress = Annotated[str, BeforeValidator(_off), AfterValidator(_http_address)]


class Settings(BaseModel):
    """What an operator may set."""

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        regex_engine="python-re",  # loaded anyway, and half a megabyte less than the other
    )

    node_name: str = Field(
        pattern=_DNS_LABELS, max_length=253, description="the Kubernetes name of this node"
    )
    driver_name: str = Field(
        "gpu.carina.dev", pattern=_DNS_LABELS, max_length=63, description="the DRA driver's name"
    )
    kubelet_root: AbsolutePath = Field(
        Path("/var/lib/kubelet"),
        description="the kubelet's root; its plugins and plugins_registry folders must have the "
        "same path here as on the host",
    )
    pod_uid: str | None = Field(
        None,
        pattern=r"^[-a-zA-Z0-9]{1,63}\Z",
        description="UID of this pod: names the sockets, so that an old and a new plugin can run "
        "side by side during a rolling update",
    )
    cdi_directory: AbsolutePath = Field(
        Path("/var/run/cdi"), description="where the container runtime reads CDI specs"
    )
    driver_root: AbsolutePath = Field(
        Path("/"), description="root of the installed NVIDIA driver, as this process sees it"
    )
    host_driver_root: AbsolutePath = Field(
        Path("/"), description="the same root, as the container runtime on the host sees it"
    )
    host_root: AbsolutePath = Field(
        Path("/"),
        description="the root below which dev, sys and proc are those of the host; must have the "
        "same path here as on the host",
    )
    cdi_hook: AbsolutePath | None = Field(
        None,
        description="nvidia-cdi-hook on the host; unset: looked for below the driver root",
    )
    poll_seconds: float = Field(
        5.0, gt=0, le=300, description="seconds between two readings of the node's GPUs"
    )
    repair_seconds: float = Field(
        60.0, gt=0, le=3600, description="seconds between two checks of what prepared claims need"
    )
    beside_other_drivers: Literal["withhold", "publish"] = Field(
        "withhold",
        description="what is done with GPUs that a device plugin or another DRA driver on the node "
        "offers too: withhold, or publish although two pods may then be given one GPU",
    )
    http_address: HttpAddress = Field(
        "[::]:8080",
        description="where /metrics, /healthz and /readyz are served, HOST:PORT; host [::] serves "
        "IPv4 and IPv6, or IPv4 alone where the kernel has no IPv6; off disables the endpoint",
    )
    kubeconfig: AbsolutePath | None = Field(
        None, description="kubeconfig file; unset: the pod's service account"
    )
    service_account: AbsolutePath = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        description="folder of the service account's token and ca.crt",
    )
    log_format: Literal["json", "text"] = Field("json", description="of the log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="least severity that is logged"
    )

    @model_validator(mode="after")
    def _sockets_fit(self) -> Self:
        for path in (self.dra_socket, self.registration_socket):
            if not _fits(path):
                raise ValueError(
                    f"kubelet_root and driver_name make the socket path {path}, longer than the "
                    f"{_SOCKET_PATH_BYTES} bytes that Linux allows; shorten one of them"
                )
        return self

    @property
    def plugin_directory(self) -> Path:
        """The folder of the driver's own socket and checkpoint."""
        return self.kubelet_root / "plugins" / self.driver_name

    @property
    def dra_socket(self) -> Path:
        """The socket on which the kubelet calls the driver.

        The UID of the pod in its name is replaced by a hash where the path would be too long.
        """
        if self.pod_uid is None:
            return self.plugin_directory / "dra.sock"
        path = self.plugin_directory / f"dra-{self.pod_uid}.sock"
        return path if _fits(path) else path.with_name(f"dra-{_digest(self.pod_uid)}.sock")

    @property
    def registration_socket(self) -> Path:
        """The socket in the kubelet's registry at which it finds the plugin.

        Driver name and UID in its name are replaced by hashes where the path would be too long.
        """
        driver, uid = self.driver_name, self.pod_uid
        path = self._registry / f"{driver}{'' if uid is None else f'-{uid}'}-reg.sock"
        if _fits(path):
            return path
        return path.with_name(
            f"dra-{_digest(driver)}{'' if uid is None else f'-{_digest(uid)}'}-reg.sock"
        )

    @property
    def socket_patterns(self) -> tuple[tuple[Path, str], ...]:
        """Folders, and patterns in them that match the sockets of each of the driver's pods."""
        return (
            (self.plugin_directory, "dra*.sock"),
            (self._registry, f"{self.driver_name}-*reg.sock"),
            (self._registry, f"dra-{_digest(self.driver_name)}-*reg.sock"),
        )

    @property
    def _registry(self) -> Path:
        return self.kubelet_root / "plugins_registry"

    @property
    def checkpoint(self) -> Path:
        """Where prepared claims are recorded."""
        return self.plugin_directory / "checkpoint.jsonl"

    @property
    def lock(self) -> Path:
        """What is locked while prepared claims change."""
        return self.plugin_directory / "serialize.lock"


def _fits(socket: Path) -> bool:
    return len(str(socket).encode()) <= _SOCKET_PATH_BYTES


def _digest(text: str) -> str:
    """48 bits of a hash in 8 characters: enough to tell the drivers and pods of a node apart."""
    return urlsafe_b64encode(sha256(text.encode()).digest()[:6]).decode()


def load(
    arguments: Sequence[str], environment: Mapping[str, str], *, program: str, version: str
) -> Settings:
    """Gives the settings in force. `--help` and `--version` end the process, as argparse does.

    Raises:
        SettingsError: naming each setting that is unknown, missing or has a wrong value, where it
            was set and what is allowed.
    """
    parser = argparse.ArgumentParser(
        prog=program, description="Carina's node plugin: GPUs through DRA.", allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"{program} {version}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="settings in YAML")
    for name, field in Settings.model_fields.items():
        default = "" if field.is_required() or field.default is None else f" [{field.default}]"
        parser.add_argument(
            "--" + name.replace("_", "-"),
            default=argparse.SUPPRESS,
            metavar=name.rpartition("_")[2].upper(),
            help=f"{field.description}{default}".replace("%", "%%"),
        )
    flags = vars(parser.parse_args(arguments))
    file: Path | None = flags.pop("config")
    layers = {
        "the environment": _from_environment(environment),
        "the flags": flags,
    }
    if file is not None:
        layers = {str(file): _from_file(file), **layers}
    values = {name: value for layer in layers.values() for name, value in layer.items()}
    try:
        return Settings.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            "; ".join(_problem(e["loc"], e["type"], e["msg"], layers) for e in error.errors())
        ) from None


def _from_environment(environment: Mapping[str, str]) -> dict[str, Any]:
    spellings = {ENVIRONMENT_PREFIX + name.upper(): name for name in Settings.model_fields}
    return {spellings[name]: value for name, value in environment.items() if name in spellings}


def _from_file(file: Path) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - a megabyte that most plugins do without

    try:
        content = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise SettingsError(f"settings file {file} cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"settings file {file} must hold `name: value` lines")
    return {str(name): value for name, value in content.items()}


def _problem(
    path: tuple[int | str, ...], kind: str, message: str, layers: Mapping[str, Mapping[str, Any]]
) -> str:
    if not path:
        return message.removeprefix("Value error, ")
    name = str(path[0])
    sources = [source for source, layer in layers.items() if name in layer]
    if kind == "missing":
        spellings = f"--{name.replace('_', '-')} or {ENVIRONMENT_PREFIX}{name.upper()}"
        return f"{name} is not set; give {spellings}"
    if kind == "extra_forbidden":
        return f"{name}, set by {sources[-1]}, is not a setting; --help lists them"
    value = layers[sources[-1]][name]
    return f"{name} is {value!r}, set by {sources[-1]}: {message.removeprefix('Value error, ')}"
