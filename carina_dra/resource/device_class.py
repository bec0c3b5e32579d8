"""DeviceClass: what administrators offer, and the selectors and configurations of all requests."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.codec import JsonObject, Struct
from carina_dra.resource.metadata import ObjectMeta


@dataclass(frozen=True, slots=True)
class CelSelector(Struct):
    """A CEL expression on `device`, true for devices that will do."""

    expression: str


@dataclass(frozen=True, slots=True)
class DeviceSelector(Struct):
    """Which devices. The API has one kind of selector; what else there may be is unknown."""

    cel: CelSelector | None = None


@dataclass(frozen=True, slots=True)
class OpaqueConfiguration(Struct):
    """Parameters that only the driver understands."""

    driver: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ClassConfiguration(Struct):
    """A configuration of all devices of a class."""

    opaque: OpaqueConfiguration | None = None


@dataclass(frozen=True, slots=True)
class DeviceClassSpec(Struct):
    """Which devices are in the class, and how they are set up."""

    selectors: tuple[DeviceSelector, ...] = ()
    config: tuple[ClassConfiguration, ...] = ()
    extended_resource_name: str | None = None
    """Under which pods get one through `limits`, such as nvidia.com/gpu (KEP-5004)."""


@dataclass(frozen=True, slots=True)
class DeviceClass(Struct):
    """A kind of device, by what administrators find worth telling apart."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceClass"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceClassSpec = field(default_factory=DeviceClassSpec)
