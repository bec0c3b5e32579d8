"""Taints of devices, what tolerates them, and the rules that add them (KEP-5055)."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from carina_dra.resource.metadata import Condition, ObjectMeta
from carina_dra.resource.schema import Struct, Unrecognized


class TaintEffect(StrEnum):
    """What a taint does to pods that do not tolerate it. One that is not known counts as none."""

    NONE = "None"
    """Nothing: it informs."""
    NO_SCHEDULE = "NoSchedule"
    """The device is not allocated any more."""
    NO_EXECUTE = "NoExecute"
    """And pods that use it are evicted."""


class TolerationOperator(StrEnum):
    """How a toleration compares its value. With one that is not known it tolerates nothing."""

    EQUAL = "Equal"
    EXISTS = "Exists"


@dataclass(frozen=True, slots=True)
class DeviceTaint(Struct):
    """Why a device is better left alone."""

    key: str
    effect: TaintEffect | Unrecognized
    value: str = ""
    time_added: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeviceToleration(Struct):
    """Taints that a request puts up with. An empty key, no effect: every key, every effect."""

    key: str = ""
    operator: TolerationOperator | Unrecognized = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect | Unrecognized | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintSelector(Struct):
    """Which devices: those that are as said in all that is said; all of them if nothing is."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintRuleSpec(Struct):
    """A taint, and what gets it. Without a selector nothing does."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class DeviceTaintRuleStatus(Struct):
    """How far an eviction is."""

    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceTaintRule(Struct):
    """An administrator's taint for devices that others publish."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceTaintRule"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceTaintRuleSpec = field(kw_only=True)
    status: DeviceTaintRuleStatus = field(default_factory=DeviceTaintRuleStatus)
