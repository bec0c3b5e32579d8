"""DeviceClass: selectors and configuration that administrators provide for requests."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.schema import JsonObject, Struct


@dataclass(frozen=True, slots=True)
class CelSelector(Struct):
    """A CEL expression on `device`. It is true for devices that match."""

    expression: str


@dataclass(frozen=True, slots=True)
class DeviceSelector(Struct):
    """A criterion for devices."""

    cel: CelSelector | None = None
    """None for a kind of selector that only a newer API knows; it must not count as true."""


@dataclass(frozen=True, slots=True)
class OpaqueConfiguration(Struct):
    """Parameters that only the driver interprets."""

    driver: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ClassConfiguration(Struct):
    """A configuration for all devices that are requested through a class."""

    opaque: OpaqueConfiguration | None = None
    """None for a kind of configuration that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class DeviceClassSpec(Struct):
    """The devices in the class, and their configuration."""

    selectors: tuple[DeviceSelector, ...] = ()
    """All must match."""
    config: tuple[ClassConfiguration, ...] = ()
    extended_resource_name: str | None = None
    """The extended resource, such as nvidia.com/gpu, with which pods can request a device of the
    class in `resources.limits` (KEP-5004)."""


@dataclass(frozen=True, slots=True)
class DeviceClass(Struct):
    """A class of devices that claims can request."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceClass"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)
