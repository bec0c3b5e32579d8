"""MIG mode that cannot be switched, because a process of the host has the GPU open.

NVML says so only when it is asked to switch the mode, and does not say which process it is. So its
last answer counts until a later switch succeeds.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import ClassVar, Final, TypeAlias

from carina_dra.nvidia.nvml_failure import NvmlFailure

_FIRST: Final = 60.0
"""Seconds after the first refusal until the next attempt; twice as long after each further one."""
_LONGEST: Final = 1800.0
"""Seconds between two attempts at most."""


class Switch(Enum):
    """A change of MIG mode."""

    ON = "on"
    """For a partition."""
    OFF = "off"
    """For the whole GPU or a share."""


@dataclass(frozen=True, slots=True)
class HeldMode:
    """A change of MIG mode that NVML refuses while a process has the GPU open."""

    state: ClassVar[str] = "mig-mode-held"
    """Used in the taint and the metric."""
    switch: Switch
    failure: NvmlFailure
    since: datetime

    def __str__(self) -> str:
        return f"MIG mode cannot be switched {self.switch.value} ({self.failure})"


@dataclass(frozen=True, slots=True)
class RefusedSwitch:
    """What is remembered of a refused switch."""

    held: HeldMode
    attempts: int
    """How often NVML has refused it in a row."""
    retry_at: float
    """When it is tried again without a claim that needs it, in monotonic seconds."""


RefusedSwitches: TypeAlias = Mapping[str, RefusedSwitch]
"""By the UUID of the GPU."""


def refused(refusals: RefusedSwitches, uuid: str, held: HeldMode, now: float) -> RefusedSwitches:
    """Returns what is remembered after NVML has refused a switch. The first time of it is kept."""
    before = refusals.get(uuid)
    if before is None or before.held.switch is not held.switch:
        return {**refusals, uuid: RefusedSwitch(held, 1, now + _FIRST)}
    wait = min(_LONGEST, _FIRST * 2.0 ** min(before.attempts, 32))
    return {**refusals, uuid: RefusedSwitch(before.held, before.attempts + 1, now + wait)}


def switched(refusals: RefusedSwitches, uuid: str) -> RefusedSwitches:
    """Returns what is remembered after the mode is as it was wanted."""
    return {other: refusal for other, refusal in refusals.items() if other != uuid}


def due(refusals: RefusedSwitches, now: float) -> tuple[str, ...]:
    """Returns the GPUs whose mode is to be switched on to see whether it can be.

    Not off: a mode that no claim needs is switched off by each repair, refused or not.
    """
    return tuple(
        uuid
        for uuid, refusal in refusals.items()
        if refusal.held.switch is Switch.ON and refusal.retry_at <= now
    )
