"""Opaque configurations of NVIDIA's DRA driver, resource.nvidia.com/v1beta1, as they are written.

They are read as strictly as Carina's own. `config.device` maps them to Carina's types, so nothing
else knows them, and records have one form. They are read whatever the driver's name is: each
configuration names the driver that it is for, and says the same for every name.

Differences from NVIDIA's API are refused by name: the strategy MPS, and the kinds in `NOT_OFFERED`.
"""

from collections.abc import Mapping
from typing import Annotated, Any, Final, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, ValidationInfo, WithJsonSchema, field_validator

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


_NO_MPS: Final = (
    "Carina does not offer MPS; write TimeSlicing or remove sharing, and the processes take turns "
    "on the device, without MPS's limits"
)
_MPS_ONLY: Final = "it is for strategy MPS, but the strategy is TimeSlicing; remove it"


class TimeSlicingConfig(BaseModel):
    """How long a process computes before the next one. Without an interval, it is Default."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    interval: TimeSliceInterval | None = None


class MigDeviceSharing(BaseModel):
    """How the containers of a claim share a partition. TimeSlicing changes nothing on it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    strategy: Annotated[Strategy, WithJsonSchema({"enum": ["TimeSlicing"], "x-remedy": _NO_MPS})]
    mpsConfig: Annotated[  # noqa: N815 - the API's name
        dict[str, Any] | None, WithJsonSchema({"type": "null", "x-remedy": _MPS_ONLY})
    ] = None

    @field_validator("strategy")
    @classmethod
    def _offered(cls, strategy: Strategy) -> Strategy:
        if strategy == "MPS":
            raise ValueError(_NO_MPS)
        return strategy

    @field_validator("mpsConfig")
    @classmethod
    def _of_the_strategy(
        cls, config: dict[str, Any] | None, info: ValidationInfo
    ) -> dict[str, Any] | None:
        if config is not None and info.data.get("strategy") == "TimeSlicing":
            raise ValueError(_MPS_ONLY)
        return config


class GpuSharing(MigDeviceSharing):
    """How the containers of a claim share a GPU."""

    timeSlicingConfig: TimeSlicingConfig | None = None  # noqa: N815 - the API's name

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
