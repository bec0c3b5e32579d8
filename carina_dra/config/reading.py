"""Reads the opaque configurations of devices.

What a user wrote is read strictly: an unknown or misplaced field is refused by name, since a
setting that is silently dropped is one that somebody believes in. Configurations of NVIDIA's API
(`config.nvidia`) are mapped to Carina's kinds.
"""

from collections.abc import Mapping
from typing import Any, Final, Literal, TypeVar, assert_never

from pydantic import BaseModel, ValidationError

from carina_dra.config import nvidia
from carina_dra.config.device import (
    API_VERSION,
    KINDS,
    DeviceConfig,
    DeviceConfigError,
    GpuConfig,
    GpuSharing,
    MigDeviceConfig,
    MpsSharing,
    PartitionSharing,
    TimeSlicingConfig,
)
from carina_dra.config.mps import MpsLimits

M = TypeVar("M", bound=BaseModel)

_STRATEGIES: Final = (("TimeSlicing",), ("MPS",))
_SHOWN: Final = 5
"""Mistakes that one message names: a tenant writes them, and an operator reads them."""
_SHOWN_CHARACTERS: Final = 60
"""Of a name that a tenant wrote, so that the remedy is within the 1,024 bytes of an Event."""


def parse_device_config(location: str, parameters: Mapping[str, Any]) -> DeviceConfig:
    """Reads a configuration of any kind as strictly as a user's must be, of NVIDIA's API too.

    Raises:
        DeviceConfigError: naming `location`, the field and what is allowed there.
    """
    if parameters.get("apiVersion") == nvidia.API_VERSION:
        return _parse_nvidia(location, parameters)
    return _parse(location, parameters, extra="forbid")


def read_recorded(location: str, parameters: Mapping[str, Any]) -> DeviceConfig:
    """Reads a configuration that was accepted before: fields of a newer version are ignored.

    Raises:
        DeviceConfigError: as `parse_device_config`, but not for unknown fields, and for every other
            API than Carina's.
    """
    return _parse(location, parameters, extra="ignore")


def is_of_known_kind(parameters: Mapping[str, Any]) -> bool:
    """Whether a recorded configuration is of a kind that this version has."""
    return parameters.get("apiVersion") == API_VERSION and parameters.get("kind") in KINDS


def _parse(
    location: str, parameters: Mapping[str, Any], *, extra: Literal["forbid", "ignore"]
) -> DeviceConfig:
    version, kind = parameters.get("apiVersion"), parameters.get("kind")
    model = KINDS.get(kind) if version == API_VERSION and isinstance(kind, str) else None
    if model is None:
        raise DeviceConfigError(
            f"{location}: opaque.parameters is {_written('apiVersion', version)}, "
            f"{_written('kind', kind)}; write apiVersion: {API_VERSION}, kind: "
            f"{' or '.join(KINDS)}; or apiVersion: {nvidia.API_VERSION}, kind: "
            f"{' or '.join(nvidia.KINDS)}"
        )
    return _validated(model, location, parameters, extra=extra)


def _parse_nvidia(location: str, parameters: Mapping[str, Any]) -> DeviceConfig:
    kind = parameters.get("kind")
    model = nvidia.KINDS.get(kind) if isinstance(kind, str) else None
    if model is None:
        remedy = nvidia.NOT_OFFERED.get(kind) if isinstance(kind, str) else None
        raise DeviceConfigError(
            f"{location}: opaque.parameters is {nvidia.API_VERSION}, {_written('kind', kind)}"
            + (f", which {remedy}" if remedy else f"; write kind: {' or '.join(nvidia.KINDS)}")
        )
    return _from_nvidia(_validated(model, location, parameters, extra="forbid"))


def _from_nvidia(config: nvidia.NvidiaConfig) -> DeviceConfig:
    match config:
        case nvidia.GpuConfig(sharing=nvidia.GpuSharing(strategy="MPS", mpsConfig=limits)):
            return GpuConfig(sharing=_by_mps(limits))
        case nvidia.MigDeviceConfig(
            sharing=nvidia.MigDeviceSharing(strategy="MPS", mpsConfig=limits)
        ):
            return MigDeviceConfig(sharing=_by_mps(limits))
        case nvidia.GpuConfig(sharing=nvidia.GpuSharing() as sharing):
            slicing = TimeSlicingConfig(interval=sharing.interval)
            return GpuConfig(sharing=GpuSharing(strategy="TimeSlicing", timeSlicingConfig=slicing))
        case nvidia.MigDeviceConfig(sharing=nvidia.MigDeviceSharing()):
            return MigDeviceConfig(sharing=PartitionSharing(strategy="TimeSlicing"))
        case nvidia.GpuConfig():
            return GpuConfig()
        case nvidia.MigDeviceConfig():
            return MigDeviceConfig()
    assert_never(config)


def _by_mps(limits: nvidia.MpsConfig | None) -> MpsSharing:
    written = {} if limits is None else limits.model_dump(exclude={"multiUser"}, exclude_none=True)
    if written.get("defaultActiveThreadPercentage") == 0:
        del written["defaultActiveThreadPercentage"]
    return MpsSharing(strategy="MPS", mpsConfig=MpsLimits.model_validate(written))


def _validated(
    model: type[M],
    location: str,
    parameters: Mapping[str, Any],
    *,
    extra: Literal["forbid", "ignore"],
) -> M:
    try:
        return model.model_validate(dict(parameters), extra=extra)
    except ValidationError as error:
        written = f"{parameters['apiVersion']} {parameters['kind']}"
        errors = error.errors()
        problems = [_problem(written, e["loc"], e["type"], e["msg"]) for e in errors[:_SHOWN]]
        if len(errors) > _SHOWN:
            problems.append(f"and {len(errors) - _SHOWN} more")
        raise DeviceConfigError(f"{location}: {'; '.join(problems)}") from None


def _problem(written: str, path: tuple[int | str, ...], kind: str, message: str) -> str:
    if path[1:2] in _STRATEGIES and path[0] == "sharing":
        path = (path[0], *path[2:])  # without the member of the union, which the user did not write
    if kind.startswith("union_tag_"):
        path, message = (*path, "strategy"), f"write {' or '.join(tag for (tag,) in _STRATEGIES)}"
    names = (_shown(name if name.isidentifier() else repr(name)) for name in map(str, path))
    field = f"opaque.parameters.{'.'.join(names)}"
    if kind == "extra_forbidden":
        return f"{field} is not a field of {written}; remove it or correct its name"
    return f"{field} of {written}: {message.removeprefix('Value error, ')}"


def _written(field: str, value: object) -> str:
    """Describes what a user wrote into a field that must be a string."""
    if value is None or value == "":
        return f"no {field}"
    return _shown(value) if isinstance(value, str) else f"a {field} that is not a string"


def _shown(text: str) -> str:
    """A text of a tenant's in a line that an operator reads."""
    printable = text if text.isprintable() else repr(text)
    cut = len(printable) > _SHOWN_CHARACTERS
    return f"{printable[:_SHOWN_CHARACTERS]}…" if cut else printable
