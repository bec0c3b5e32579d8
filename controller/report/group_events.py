"""Events about objects of groups, at a bounded rate.

A group that waits has an Event on some of its pods when its reason appears or changes. The text of
a reason has numbers that change all the time; it is repeated at most once a minute.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Final, TypeAlias, assert_never

from carina_dra.kube.event import ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from controller.report.notice import REFUSED, GroupRefused, GroupWaits, Notice, event_text
from controller.report.rate import TokenBucket

PODS_NAMED: Final = 3
"""How many pods of a group have its Event."""
RATE: Final = 10.0
"""Events about groups, a second."""
BURST: Final = 150
TEXT_INTERVAL: Final = 60.0
"""Seconds between two Events of a group with the same reason and other texts."""
REPEAT_INTERVAL: Final = 3000.0
"""Seconds after which the same text is repeated: the API server drops Events after an hour."""

GroupNotice: TypeAlias = GroupWaits | GroupRefused


@dataclass(frozen=True, slots=True)
class _Told:
    """What the last Event of a group said, and when."""

    notice: GroupNotice
    at: float


class GroupEvents:
    """Records what becomes of groups. Used by one thread."""

    def __init__(self, recorder: EventRecorder, *, rate: float = RATE, burst: int = BURST) -> None:
        self._recorder = recorder
        self._bucket = TokenBucket(rate=rate, burst=burst)
        self._told: dict[str, _Told] = {}

    def record(self, regarding: ObjectReference, notice: Notice) -> None:
        """Records an Event about one object, at once."""
        text = event_text(notice)
        self._recorder.record(regarding, text.type, text.reason, text.note, action=text.action)

    def report(
        self,
        groups: Mapping[str, GroupNotice],
        pods_of: Callable[[str], Iterable[ObjectReference]],
        now: float,
    ) -> bool:
        """Records what is new about groups. `now` is in seconds of any steady clock.

        groups: all groups that wait or are refused now, by key.
        pods_of: the pods of a group that have no place; the first few get the Event.
        Returns whether something was left out to keep the rate: then it is due in a later call.
        """
        for key in self._told.keys() - groups.keys():
            del self._told[key]
        for key, notice in self._due(groups, now):
            pods = list(islice(pods_of(key), PODS_NAMED))
            if not self._bucket.take(now, len(pods)):
                return True
            self._told[key] = _Told(notice, now)
            for pod in pods:
                self.record(pod, notice)
        return False

    def _due(
        self, groups: Mapping[str, GroupNotice], now: float
    ) -> Iterator[tuple[str, GroupNotice]]:
        """The groups that have something to say, those with another reason first."""
        later = []
        for key, notice in groups.items():
            told = self._told.get(key)
            if told is None or _word(told.notice) != _word(notice):
                yield key, notice
            elif now - told.at >= (REPEAT_INTERVAL if told.notice == notice else TEXT_INTERVAL):
                later.append((key, notice))
        yield from later


def _word(notice: GroupNotice) -> str:
    match notice:
        case GroupWaits(word=word):
            return word
        case GroupRefused():
            return REFUSED
    assert_never(notice)
