"""DeviceClass: what administrators offer, and the selectors and configurations of all requests."""

from dataclasses import dataclass, field
from typing import ClassVar

from carina_dra.resource.metadata import ObjectMeta
from carina_dra.resource.schema import JsonObject, Struct


@dataclass(frozen=True, slots=True)
class CelSelector(Struct):
    """A CEL expression on `device`, true for devices that will do."""

    expression: str


@dataclass(frozen=True, slots=True)
class DeviceSelector(Struct):
    """Which devices."""

    cel: CelSelector | None = None
    """None where it is of a kind that only a newer API knows: not to be taken for true."""


@dataclass(frozen=True, slots=True)
class OpaqueConfiguration(Struct):
    """Parameters that only the driver understands."""

    driver: str
    parameters: JsonObject


@dataclass(frozen=True, slots=True)
class ClassConfiguration(Struct):
    """A configuration of all devices of a class."""

    opaque: OpaqueConfiguration | None = None
    """None where it is of a kind that only a newer API knows."""


@dataclass(frozen=True, slots=True)
class DeviceClassSpec(Struct):
    """Which devices are in the class, and how they are set up."""

    selectors: tuple[DeviceSelector, ...] = ()
    """All must hold."""
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
