"""What users say about a device: the opaque configurations of resource.carina.dev/v1alpha1.

They are written in a DeviceClass or a ResourceClaim under `config[].opaque.parameters`, and reach
the node with the allocation. `DeviceConfig` is a closed union with a member for each kind.
"""

from collections.abc import Iterable, Mapping
from typing import Annotated, Final, Literal, TypeAlias, assert_never

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
)

from carina_dra.config.enforcement import (
    CORE_ATTRIBUTES,
    MEMORY_ATTRIBUTES,
    NONE,
    CoreLevel,
    MemoryLevel,
    demand_remedy,
    demanded,
)
from carina_dra.config.mps import MpsLimits
from carina_dra.config.time_slice import TimeSliceInterval

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


KINDS: Final[Mapping[str, type[DeviceConfig]]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
    "ShareConfig": ShareConfig,
}
"""The kinds of the API."""
