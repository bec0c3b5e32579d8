"""Taints of devices, what tolerates them, and the rules that add them (KEP-5055)."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from carina_dra.resource.codec import Struct
from carina_dra.resource.metadata import Condition, ObjectMeta


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it."""

    NONE = "None"
    """Nothing: it informs."""
    NO_SCHEDULE = "NoSchedule"
    """The device is not allocated any more."""
    NO_EXECUTE = "NoExecute"
    """And pods that use it are evicted."""


class TolerationOperator(StrEnum):
    """How a toleration compares its value."""

    EQUAL = "Equal"
    EXISTS = "Exists"


@dataclass(frozen=True, slots=True)
class DeviceTaint(Struct):
    """Why a device is better left alone."""

    key: str
    effect: TaintEffect
    value: str = ""
    time_added: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeviceToleration(Struct):
    """Taints that a request puts up with. An empty key or effect stands for all."""

    key: str = ""
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintSelector(Struct):
    """Which devices; what is not given does not matter, so that one without anything is all."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintRuleSpec(Struct):
    """A taint, and what gets it. Without a selector nothing does."""

    taint: DeviceTaint
    device_selector: DeviceTaintSelector | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintRuleStatus(Struct):
    """How far an eviction is."""

    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceTaintRule(Struct):
    """An administrator's taint for devices that others publish."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceTaintRule"

    spec: DeviceTaintRuleSpec
    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    status: DeviceTaintRuleStatus = field(default_factory=DeviceTaintRuleStatus)
