"""What users are told when a problem of their devices begins or ends: pure values.

A notice follows from what the claim's status said before and says now. The status is kept by the
API server, so that a plugin that was restarted tells no problem again.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from typing import Final, TypeAlias

from carina_dra.resource import ConditionStatus
from kubelet_plugin.claim_status.device_status import (
    HEALTHY,
    MEMORY_WITHIN_SHARE,
    PROCESS_ENDED,
    DeviceStatus,
    Stated,
)

_WELL: Final = ConditionStatus.TRUE


@dataclass(frozen=True, slots=True, order=True)
class ProblemBegan:
    """Devices of the claim do not work any more, or nothing is known of them."""

    reason: str
    message: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class ProblemEnded:
    """Devices of the claim are healthy again."""

    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class MemoryExceeded:
    """The pods of the claim use more memory of a shared GPU than given."""

    message: str
    devices: tuple[str, ...]


@dataclass(frozen=True, slots=True, order=True)
class ProcessWasEnded:
    """A process of the claim's pods was ended, because of what it did on a shared GPU."""

    message: str
    devices: tuple[str, ...]


HealthNotice: TypeAlias = ProblemBegan | ProblemEnded | MemoryExceeded | ProcessWasEnded


def notices(
    before: Sequence[DeviceStatus], after: Sequence[DeviceStatus]
) -> tuple[HealthNotice, ...]:
    """Returns a notice for each problem that began, and one for all devices that are well again.

    A device of which nothing was said before was well. One that only got slower is well. That a
    share is exceeded no longer is no notice. Where processes of a share are ended, that it is
    exceeded is none, too.
    """
    known = {status.key: status.condition(HEALTHY) for status in before}
    began: list[tuple[str, str, str]] = []
    ended: list[str] = []
    for status in after:
        old, new = known.get(status.key), status.condition(HEALTHY)
        if new is None:
            continue
        if new.status is not _WELL and not _is_same(old, new):
            began.append((new.reason, new.message, status.device))
        elif new.status is _WELL and old is not None and old.status is not _WELL:
            ended.append(status.device)
    by_problem = groupby(sorted(began), key=itemgetter(0, 1))
    return (
        *(
            ProblemBegan(reason, message, _names(device for _, _, device in found))
            for (reason, message), found in by_problem
        ),
        *((ProblemEnded(_names(ended)),) if ended else ()),
        *_of_memory(before, after),
    )


def _of_memory(
    before: Iterable[DeviceStatus], after: Iterable[DeviceStatus]
) -> Iterator[MemoryExceeded | ProcessWasEnded]:
    """Yields a notice for each message of devices whose share is exceeded, or ended for, now."""
    known = {
        status.key: told.reason
        for status in before
        if (told := status.condition(MEMORY_WITHIN_SHARE)) and told.status is ConditionStatus.FALSE
    }
    exceeded: dict[str, list[str]] = {}
    ended: dict[str, list[str]] = {}
    for status in after:
        stated = status.condition(MEMORY_WITHIN_SHARE)
        if stated is None or stated.status is not ConditionStatus.FALSE:
            continue
        told_before = known.get(status.key)
        if stated.reason == PROCESS_ENDED and told_before != PROCESS_ENDED:
            ended.setdefault(stated.message, []).append(status.device)
        elif told_before is None:
            exceeded.setdefault(stated.message, []).append(status.device)
    yield from (MemoryExceeded(message, _names(found)) for message, found in exceeded.items())
    yield from (ProcessWasEnded(message, _names(found)) for message, found in ended.items())


def _is_same(old: Stated | None, new: Stated) -> bool:
    return old is not None and (old.status, old.reason) == (new.status, new.reason)


def _names(devices: Iterable[str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(devices))
