"""Which configuration is in force for each device of an allocation.

Several may concern a device: of its class and of its claim, for all requests or for some.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, assert_never

from carina_dra.config import nvidia
from carina_dra.config.device import (
    API_VERSION,
    DeviceConfig,
    DeviceConfigError,
    Enforcement,
    GpuConfig,
    MigDeviceConfig,
    ShareConfig,
    TimeSlicingConfig,
    time_slice,
)
from carina_dra.config.enforcement import core_levels, memory_levels
from carina_dra.config.reading import parse_device_config
from carina_dra.config.time_slice import TimeSliceInterval

_INTERVAL: Final = "opaque.parameters.timeSlicing.interval"


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
