"""What users say about a device: the opaque configurations of resource.carina.dev/v1alpha1.

They are written in a DeviceClass or a ResourceClaim under `config[].opaque.parameters`, and reach
the node with the allocation. `DeviceConfig` is a closed union with a member for each kind. What a
user wrote is read strictly: an unknown or misplaced field is refused by name, since a setting that
is silently dropped is one that somebody believes in. Configurations of NVIDIA's API
(`config.nvidia`) are mapped to these kinds when they are read.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypeAlias, TypeVar, assert_never

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    ValidationError,
    WithJsonSchema,
)

from carina_dra.config import nvidia
from carina_dra.config.enforcement import (
    CORE_ATTRIBUTES,
    MEMORY_ATTRIBUTES,
    NONE,
    CoreLevel,
    MemoryLevel,
    core_levels,
    demand_remedy,
    demanded,
    memory_levels,
)
from carina_dra.config.mps import MpsLimits
from carina_dra.config.time_slice import TimeSliceInterval

M = TypeVar("M", bound=BaseModel)

API_VERSION: Final = "resource.carina.dev/v1alpha1"


class DeviceConfigError(ValueError):
    """A configuration that cannot be honoured: names its location, the field and the remedy."""


class TimeSlicingConfig(BaseModel):
    """How long a process computes before the next one."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    interval: TimeSliceInterval = "Default"


class GpuSharing(BaseModel):
    """The containers of a claim take turns on a GPU."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    strategy: Literal["TimeSlicing"]
    timeSlicingConfig: TimeSlicingConfig = TimeSlicingConfig()  # noqa: N815 - the API's name


class MpsSharing(BaseModel):
    """The containers of a claim compute through an MPS daemon of its own."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    strategy: Literal["MPS"]
    mpsConfig: MpsLimits = MpsLimits()  # noqa: N815 - the API's name


class PartitionSharing(BaseModel):
    """The containers of a claim take turns on a partition, whose time slices have one length."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    strategy: Literal["TimeSlicing"]


class GpuConfig(BaseModel):
    """How a whole GPU is handed out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    apiVersion: Literal["resource.carina.dev/v1alpha1"] = API_VERSION  # noqa: N815 - the API's name
    kind: Literal["GpuConfig"] = "GpuConfig"
    sharing: Annotated[GpuSharing | MpsSharing, Field(discriminator="strategy")] | None = None


class MigDeviceConfig(BaseModel):
    """How a MIG partition is handed out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    apiVersion: Literal["resource.carina.dev/v1alpha1"] = API_VERSION  # noqa: N815 - the API's name
    kind: Literal["MigDeviceConfig"] = "MigDeviceConfig"
    sharing: Annotated[PartitionSharing | MpsSharing, Field(discriminator="strategy")] | None = None


def _written_demand(levels: tuple[str, ...]) -> str | tuple[str, ...]:
    """One level as a word, which every version reads."""
    return levels[0] if len(levels) == 1 else levels


def _demand_schema(levels: Iterable[str]) -> WithJsonSchema:
    known = list(levels)
    word, several = {"enum": [NONE, *known]}, {"type": "array", "items": {"enum": known}}
    return WithJsonSchema({"anyOf": [word, several], "x-remedy": demand_remedy(known)})


MemoryDemand: TypeAlias = Annotated[
    tuple[MemoryLevel, ...],
    BeforeValidator(lambda written: demanded(written, MEMORY_ATTRIBUTES)),
    PlainSerializer(_written_demand),
    _demand_schema(MEMORY_ATTRIBUTES),
]
CoreDemand: TypeAlias = Annotated[
    tuple[CoreLevel, ...],
    BeforeValidator(lambda written: demanded(written, CORE_ATTRIBUTES)),
    PlainSerializer(_written_demand),
    _demand_schema(CORE_ATTRIBUTES),
]


class Enforcement(BaseModel):
    """The levels of enforcement that a share must have, all of them; `none` demands nothing."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    memory: MemoryDemand = ()
    cores: CoreDemand = ()


class ShareConfig(BaseModel):
    """What a share of a GPU must have to be handed out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    apiVersion: Literal["resource.carina.dev/v1alpha1"] = API_VERSION  # noqa: N815 - the API's name
    kind: Literal["ShareConfig"] = "ShareConfig"
    enforcement: Enforcement = Enforcement()
    timeSlicing: TimeSlicingConfig | None = None  # noqa: N815 - the API's name
    """The time slices of the GPU, which all of its shares have. `Default` demands none."""


DeviceConfig: TypeAlias = GpuConfig | MigDeviceConfig | ShareConfig
"""A configuration of any kind."""


def time_slice(config: DeviceConfig) -> TimeSliceInterval | None:
    """Returns the interval that a configuration demands for its GPU; None if it demands none.

    For shares, `Default` demands none: one share has no say in what the others get.
    """
    match config:
        case ShareConfig(timeSlicing=TimeSlicingConfig(interval="Default")):
            return None
        case GpuConfig(sharing=GpuSharing() as sharing):
            return sharing.timeSlicingConfig.interval
        case ShareConfig(timeSlicing=TimeSlicingConfig() as slicing):
            return slicing.interval
        case GpuConfig() | MigDeviceConfig() | ShareConfig():
            return None
    assert_never(config)


def demands_mps(config: DeviceConfig) -> bool:
    """Returns whether a configuration demands that containers compute through MPS."""
    match config:
        case ShareConfig(enforcement=Enforcement(memory=memory, cores=cores)):
            return "mps" in memory or "mps" in cores
        case GpuConfig() | MigDeviceConfig():
            return mps_config(config) is not None
    assert_never(config)


def mps_config(config: DeviceConfig) -> MpsLimits | None:
    """Returns the limits of a whole GPU or a partition that is shared by MPS; None of others."""
    match config:
        case GpuConfig(sharing=MpsSharing(mpsConfig=limits)):
            return limits
        case MigDeviceConfig(sharing=MpsSharing(mpsConfig=limits)):
            return limits
        case GpuConfig() | MigDeviceConfig() | ShareConfig():
            return None
    assert_never(config)


_INTERVAL: Final = "opaque.parameters.timeSlicing.interval"
_STRATEGIES: Final = (("TimeSlicing",), ("MPS",))
_SHOWN: Final = 5
"""Mistakes that one message names: a tenant writes them, and an operator reads them."""
_SHOWN_CHARACTERS: Final = 60
"""Of a name that a tenant wrote, so that the remedy is within the 1,024 bytes of an Event."""
KINDS: Final[Mapping[str, type[DeviceConfig]]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
    "ShareConfig": ShareConfig,
}
"""The kinds of the API."""


@dataclass(frozen=True, slots=True)
class ConfigSource:
    """One opaque configuration of an allocation, with the words that name it in a message."""

    location: str
    """Such as `ResourceClaim default/train, status.allocation.devices.config[0]`."""
    from_class: bool
    """Written in the class. The claim's configurations override the class's, in any order."""
    requests: frozenset[str]
    """Requests it applies to (`req` or `req/sub`); empty for all."""
    parameters: Mapping[str, Any]
    """The configuration as it was written."""

    def applies_to(self, request: str) -> bool:
        """Whether it is for a result whose `request` is `req` or `req/sub`."""
        return not self.requests or not self.requests.isdisjoint(
            (request, request.partition("/")[0])
        )


@dataclass(frozen=True, slots=True)
class ConfiguredDevice:
    """An allocated device, as far as its configuration depends on it."""

    request: str
    """The result's: `req` or `req/sub`."""
    name: str
    accepts: type[DeviceConfig]
    """The kind of configuration that this kind of device takes."""


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


def configs_in_force(
    devices: Sequence[ConfiguredDevice],
    sources: Sequence[ConfigSource],
    *,
    share_interval_by_claim: bool = False,
) -> tuple[DeviceConfig, ...]:
    """Gives the configuration of each device, in their order; the default where none is written.

    Every source that applies to a device is read, so that a mistake is found even where another
    source overrides it. The claim's take precedence over the class's, and within either the later
    ones, as a whole: fields of several are not mixed (KEP-4381, "opaque configuration"). The
    levels that ShareConfigs demand are united, so that a claim cannot weaken its class.
    The time slices of a share are those that its class demands, since all shares of the GPU have
    them; if the class demands none and `share_interval_by_claim`, they are those of the claim.
    A source that names requests is for all of their devices; one that names none is for those of
    its kind. These rules are also those of NVIDIA's driver, so sources of both APIs can be mixed.

    Raises:
        DeviceConfigError: a source cannot be read, is not for the kind of device that its request
            was allocated, demands time slices of a share that a claim may not choose, or is for
            none of the devices. The last is no error for NVIDIA's API, and
            none if an alternative was allocated: the source may be meant for another one.
    """
    read: list[tuple[ConfigSource, DeviceConfig]] = []
    for source in sorted(sources, key=lambda source: not source.from_class):
        concerned = [device for device in devices if source.applies_to(device.request)]
        if concerned:
            config = parse_device_config(source.location, source.parameters)
            _refuse_unsuitable(source, config, concerned)
            read.append((source, config))
    return tuple(
        _in_force(device, read, interval_by_claim=share_interval_by_claim) for device in devices
    )


def _in_force(
    device: ConfiguredDevice,
    by_precedence: Iterable[tuple[ConfigSource, DeviceConfig]],
    *,
    interval_by_claim: bool,
) -> DeviceConfig:
    sources = [
        (source, config)
        for source, config in by_precedence
        if source.applies_to(device.request) and isinstance(config, device.accepts)
    ]
    last = sources[-1][1] if sources else device.accepts()
    match last:
        case GpuConfig() | MigDeviceConfig():
            return last
        case ShareConfig():
            shares = [(source, c) for source, c in sources if isinstance(c, ShareConfig)]
            interval = _share_interval(shares, by_claim=interval_by_claim)
            return ShareConfig(
                enforcement=_all_demands([config.enforcement for _, config in shares]),
                timeSlicing=None if interval is None else TimeSlicingConfig(interval=interval),
            )
    assert_never(last)


def _share_interval(
    by_precedence: Sequence[tuple[ConfigSource, ShareConfig]], *, by_claim: bool
) -> TimeSliceInterval | None:
    of_classes = [time_slice(config) for source, config in by_precedence if source.from_class]
    fixed = next((interval for interval in reversed(of_classes) if interval), None)
    chosen = fixed
    for source, config in by_precedence:
        own = None if source.from_class else time_slice(config)
        if own is None or own == fixed:
            continue
        if fixed is not None or not by_claim:
            remedy = (
                "so a claim may not choose it; remove it, or use a DeviceClass that sets it, or "
                "ask an administrator for the setting share_time_slice_by_claim"
                if fixed is None
                else f"which its DeviceClass sets to {fixed}; remove it, or use another class"
            )
            raise DeviceConfigError(
                f"{source.location}: {_INTERVAL} is {own}, and all shares of a GPU have one "
                f"interval, {remedy}"
            )
        chosen = own
    return chosen


def _all_demands(demands: Sequence[Enforcement]) -> Enforcement:
    return Enforcement(
        memory=memory_levels(level for demand in demands for level in demand.memory),
        cores=core_levels(level for demand in demands for level in demand.cores),
    )


def _refuse_unsuitable(
    source: ConfigSource, config: DeviceConfig, concerned: Sequence[ConfiguredDevice]
) -> None:
    unsuitable = [device for device in concerned if not isinstance(config, device.accepts)]
    written = source.parameters["apiVersion"]
    for_none = len(unsuitable) == len(concerned)
    # NVIDIA's driver ignores one that names no request and suits no device; claims rely on it.
    of_nvidia = written == nvidia.API_VERSION and all(map(_is_nvidias, concerned))
    # It may be for an alternative that was not allocated (`firstAvailable`).
    ignored = of_nvidia or any("/" in device.request for device in concerned)
    if unsuitable and (source.requests or (for_none and not ignored)):
        device = unsuitable[0]
        raise DeviceConfigError(
            f"{source.location}: {written} kind {config.kind} is not for device {device.name}, "
            f"which was allocated to request {device.request}; write apiVersion: "
            f"{written if _is_nvidias(device) else API_VERSION}, kind: {_kind_of(device.accepts)}"
        )


def _is_nvidias(device: ConfiguredDevice) -> bool:
    """Whether NVIDIA's driver has such devices, and its API their kind of configuration."""
    return _kind_of(device.accepts) in nvidia.KINDS


def _kind_of(model: type[DeviceConfig]) -> str:
    return str(model.model_fields["kind"].default)


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
