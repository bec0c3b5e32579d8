"""The settings of a process, from flags, the environment, a file and defaults, in this precedence.

A process declares its settings as a pydantic model. Each setting has three spellings: `driver_name`
in the file, `CARINA_DRIVER_NAME` in the environment and `--driver-name` as a flag; one marked
`FILE_ONLY` has the first alone. Unknown names in the file and among the flags are errors, since
they are most likely misspelled. Unknown names in the environment are ignored, since Kubernetes adds
variables for Services there.
"""

import argparse
from collections.abc import Collection, Mapping, Sequence
from ipaddress import ip_address
from pathlib import Path
from typing import Annotated, Any, ClassVar, Final, Literal, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.functional_validators import AfterValidator, BeforeValidator

from carina_dra.process.metavar import Metavar, metavar

ENVIRONMENT_PREFIX: Final = "CARINA_"
DNS_LABELS: Final = r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*\Z"
"""A pattern of the names of most Kubernetes objects: a DNS subdomain."""
FILE_ONLY: Final = "only in the settings file"
"""Metadata of a setting whose values are too large for a flag: `Annotated[Table, FILE_ONLY]`."""
_DRIVER_NAME: Final = r"^(?=[a-z])" + DNS_LABELS[1:]  # the CDI vendor, which begins with a letter

SettingsT = TypeVar("SettingsT", bound="ProcessSettings")


class SettingsError(ValueError):
    """Invalid settings; the message names each setting, its source, and the allowed values."""


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


AbsolutePath = Annotated[
    Path,
    AfterValidator(_absolute),
    WithJsonSchema({"type": "string", "format": "path", "pattern": "^/"}),
]
HttpAddress = Annotated[
    str, BeforeValidator(_off), AfterValidator(_http_address), Metavar("HOST:PORT")
]


class ProcessSettings(BaseModel):
    """The settings that every process has."""

    DESCRIPTION: ClassVar[str]
    """What the program does, for `--help`."""

    model_config = ConfigDict(
        allow_inf_nan=False,
        extra="forbid",
        frozen=True,
        regex_engine="python-re",  # already loaded; the default engine takes half a megabyte more
    )

    driver_name: str = Field(
        "gpu.carina.dev",
        pattern=_DRIVER_NAME,
        max_length=63,
        description="name of the DRA driver; the first character is a letter",
    )
    http_address: HttpAddress = Field(
        "[::]:8080",
        description="HOST:PORT that serves /metrics, /healthz and /readyz; host [::] serves IPv4 "
        "and IPv6, or only IPv4 if the kernel has no IPv6; off disables the endpoint",
    )
    log_format: Literal["json", "text"] = Field("json", description="format of log lines")
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="lowest severity that is logged"
    )


class ClusterSettings(ProcessSettings):
    """The settings of a process that talks to the API server."""

    kubeconfig: AbsolutePath | None = Field(
        None, description="kubeconfig file; default: the pod's ServiceAccount"
    )
    service_account: AbsolutePath = Field(
        Path("/var/run/secrets/kubernetes.io/serviceaccount"),
        description="folder with the ServiceAccount's token and ca.crt",
    )


def load(
    model: type[SettingsT],
    arguments: Sequence[str],
    environment: Mapping[str, str],
    *,
    program: str,
    version: str,
) -> SettingsT:
    """Returns the settings. `--help` and `--version` end the process, as argparse does.

    Raises:
        SettingsError: a setting is unknown, missing or invalid.
    """
    anywhere = {
        name: field for name, field in model.model_fields.items() if FILE_ONLY not in field.metadata
    }
    parser = argparse.ArgumentParser(
        prog=program, description=model.DESCRIPTION, allow_abbrev=False
    )
    parser.add_argument("--version", action="version", version=f"{program} {version}")
    parser.add_argument("--config", type=Path, metavar="FILE", help="YAML file with settings")
    for name, field in anywhere.items():
        unset = field.is_required() or field.default is None
        default = "" if unset else f" [{written(field.default)}]"
        parser.add_argument(
            "--" + name.replace("_", "-"),
            default=argparse.SUPPRESS,
            metavar=metavar(field.annotation, field.metadata),
            help=f"{field.description}{default}".replace("%", "%%"),
        )
    flags = vars(parser.parse_args(arguments))
    file: Path | None = flags.pop("config")
    layers = {
        "the environment": _from_environment(environment, anywhere),
        "the flags": flags,
    }
    if file is not None:
        layers = {str(file): _from_file(file), **layers}
    return _combined(model, layers)


def written(default: object) -> str:
    """Returns a default as a flag has it."""
    return str(default).lower() if isinstance(default, bool) else str(default)


def read(model: type[SettingsT], source: str, text: str, **given: str) -> SettingsT:
    """Returns the settings in the text of a settings file; `source` names it in errors.

    given: settings that the file does not have, since they differ by process.

    Raises:
        SettingsError: a setting is unknown, missing or invalid.
    """
    return _combined(model, {"the caller": given, source: _parsed(source, text)})


def _combined(model: type[SettingsT], layers: Mapping[str, Mapping[str, Any]]) -> SettingsT:
    """The settings of all layers, of which a later one takes precedence."""
    values = {name: value for layer in layers.values() for name, value in layer.items()}
    try:
        return model.model_validate(values)
    except ValidationError as error:
        raise SettingsError(
            "; ".join(_problem(e["loc"], e["type"], e["msg"], layers) for e in error.errors())
        ) from None


def _from_environment(environment: Mapping[str, str], names: Collection[str]) -> dict[str, Any]:
    spellings = {ENVIRONMENT_PREFIX + name.upper(): name for name in names}
    return {spellings[name]: value for name, value in environment.items() if name in spellings}


def _from_file(file: Path) -> dict[str, Any]:
    source = f"settings file {file}"
    try:
        return _parsed(source, file.read_text())
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"{source} cannot be read: {error}") from error


def _parsed(source: str, text: str) -> dict[str, Any]:
    import yaml  # noqa: PLC0415 - takes a megabyte, and a plugin seldom has a file

    try:
        content = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise SettingsError(f"{source} cannot be read: {error}") from error
    if content is None:
        return {}
    if not isinstance(content, dict):
        raise SettingsError(f"{source} must contain `name: value` lines")
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
        return f"{name} is not set; set {spellings}"
    if kind == "extra_forbidden":
        return f"{name}, set by {sources[-1]}, is not a setting; --help lists them"
    value = layers[sources[-1]][name]
    for key in path[1:]:
        if not isinstance(value, Mapping) or key not in value:
            break
        name, value = f"{name}.{key}", value[key]
    return f"{name} is {value!r}, set by {sources[-1]}: {message.removeprefix('Value error, ')}"
