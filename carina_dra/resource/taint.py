"""Device taints, tolerations, and the rules that add taints (KEP-5055)."""

from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import ClassVar

from carina_dra.resource.metadata import Condition, ObjectMeta
from carina_dra.resource.schema import Struct, Unrecognized


class TaintEffect(StrEnum):
    """The effect of a taint on pods that do not tolerate it. An unrecognized one counts as NONE."""

    NONE = "None"
    """No effect, for information only."""
    NO_SCHEDULE = "NoSchedule"
    """The device is not allocated."""
    NO_EXECUTE = "NoExecute"
    """The device is not allocated, and pods that use it are evicted."""


class TolerationOperator(StrEnum):
    """How a toleration matches. With an unrecognized operator it matches nothing."""

    EQUAL = "Equal"
    EXISTS = "Exists"


@dataclass(frozen=True, slots=True)
class DeviceTaint(Struct):
    """A reason not to use a device."""

    key: str
    effect: TaintEffect | Unrecognized
    value: str = ""
    time_added: datetime | None = None


@dataclass(frozen=True, slots=True)
class DeviceToleration(Struct):
    """Taints that a request tolerates. An empty key matches all keys, no effect all effects."""

    key: str = ""
    operator: TolerationOperator | Unrecognized = TolerationOperator.EQUAL
    value: str = ""
    effect: TaintEffect | Unrecognized | None = None
    toleration_seconds: int | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintSelector(Struct):
    """The devices that match every field that is set; all devices if none is set."""

    driver: str | None = None
    pool: str | None = None
    device: str | None = None


@dataclass(frozen=True, slots=True)
class DeviceTaintRuleSpec(Struct):
    """A taint, and the devices that get it: none without a selector."""

    device_selector: DeviceTaintSelector | None = None
    taint: DeviceTaint = field(kw_only=True)


@dataclass(frozen=True, slots=True)
class DeviceTaintRuleStatus(Struct):
    """The progress of an eviction."""

    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, slots=True)
class DeviceTaintRule(Struct):
    """A taint that an administrator adds to published devices."""

    API_VERSION: ClassVar[str] = "resource.k8s.io/v1"
    KIND: ClassVar[str] = "DeviceTaintRule"

    metadata: ObjectMeta = field(default_factory=ObjectMeta)
    spec: DeviceTaintRuleSpec = field(kw_only=True)
    status: DeviceTaintRuleStatus = field(default_factory=DeviceTaintRuleStatus)
