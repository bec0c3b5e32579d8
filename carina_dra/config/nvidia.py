"""Opaque configurations of NVIDIA's DRA driver, resource.nvidia.com/v1beta1, as they are written.

They are read as strictly as Carina's own. `config.device` maps them to Carina's types, so nothing
else knows them, and records have one form. They are read whatever the driver's name is: each
configuration names the driver that it is for, and says the same for every name.

Differences from NVIDIA's API are refused by name: the kinds in `NOT_OFFERED`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationInfo

from carina_dra.config import mps
from carina_dra.config.time_slice import TimeSliceInterval

API_VERSION: Final = "resource.nvidia.com/v1beta1"

Strategy: TypeAlias = Literal["TimeSlicing", "MPS"]

_COMPUTE_DOMAINS: Final = (
    "configures ComputeDomains, which are of the driver compute-domain.nvidia.com; name that "
    "driver in opaque.driver, and keep it installed"
)
NOT_OFFERED: Final[Mapping[str, str]] = {
    "VfioDeviceConfig": "configures GPU passthrough, which Carina does not offer; remove it",
    "ComputeDomainChannelConfig": _COMPUTE_DOMAINS,
    "ComputeDomainDaemonConfig": _COMPUTE_DOMAINS,
}
"""Kinds of this API that Carina does not read: what they do, and the remedy."""


_MPS_ONLY: Final = "it is for strategy MPS, but the strategy is TimeSlicing; remove it"
_SLICES_ONLY: Final = "it is for strategy TimeSlicing, but the strategy is MPS; remove it"


class TimeSlicingConfig(BaseModel):
    """How long a process computes before the next one. Without an interval, it is Default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    interval: TimeSliceInterval | None = None


class MpsConfig(BaseModel):
    """What each client process of the MPS daemon can have; see `config.mps`."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    defaultActiveThreadPercentage: int | None = Field(  # noqa: N815 - the API's name
        default=None, ge=0, le=100
    )
    """0 is no limit."""
    defaultPinnedDeviceMemoryLimit: mps.PinnedMemory | None = None  # noqa: N815 - the API's name
    defaultPerDevicePinnedMemoryLimit: dict[str, mps.PinnedMemory] | None = None  # noqa: N815 - the API's name
    multiUser: bool | None = None  # noqa: N815 - the API's name
    """Changes nothing: processes of several users can always be clients of a daemon of Carina."""


def _for_strategy(strategy: Strategy, remedy: str) -> AfterValidator:
    """A field that only one strategy has."""

    def check(config: object, info: ValidationInfo) -> object:
        chosen = info.data.get("strategy")
        if config is not None and chosen is not None and chosen != strategy:
            raise ValueError(remedy)
        return config

    return AfterValidator(check)


def _only_with(strategy: Strategy, remedy: str) -> Mapping[str, Any]:
    """What the schema says of such a field, for the admission policy."""
    return {"x-only-with": {"strategy": strategy}, "x-remedy": remedy}


class MigDeviceSharing(BaseModel):
    """How the containers of a claim share a partition. TimeSlicing changes nothing on it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    strategy: Strategy
    mpsConfig: Annotated[  # noqa: N815 - the API's name
        MpsConfig | None,
        _for_strategy("MPS", _MPS_ONLY),
        Field(json_schema_extra=dict(_only_with("MPS", _MPS_ONLY))),
    ] = None


class GpuSharing(MigDeviceSharing):
    """How the containers of a claim share a GPU."""

    timeSlicingConfig: Annotated[  # noqa: N815 - the API's name
        TimeSlicingConfig | None,
        _for_strategy("TimeSlicing", _SLICES_ONLY),
        Field(json_schema_extra=dict(_only_with("TimeSlicing", _SLICES_ONLY))),
    ] = None

    @property
    def interval(self) -> TimeSliceInterval:
        """The interval that is demanded."""
        return (self.timeSlicingConfig and self.timeSlicingConfig.interval) or "Default"


class GpuConfig(BaseModel):
    """How a whole GPU is handed out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    apiVersion: Literal["resource.nvidia.com/v1beta1"]  # noqa: N815 - the API's name
    kind: Literal["GpuConfig"]
    sharing: GpuSharing | None = None


class MigDeviceConfig(BaseModel):
    """How a MIG partition is handed out."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    apiVersion: Literal["resource.nvidia.com/v1beta1"]  # noqa: N815 - the API's name
    kind: Literal["MigDeviceConfig"]
    sharing: MigDeviceSharing | None = None


NvidiaConfig: TypeAlias = GpuConfig | MigDeviceConfig
"""A configuration of NVIDIA's API, of any kind that Carina reads."""

KINDS: Final[Mapping[str, type[NvidiaConfig]]] = {
    "GpuConfig": GpuConfig,
    "MigDeviceConfig": MigDeviceConfig,
}
