"""Events about objects of groups, at a bounded rate.

A group that waits has an Event on some of its pods when its reason appears or changes. The text of
a reason has numbers that change all the time; it is repeated at most once a minute.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from itertools import islice, zip_longest
from typing import Final, TypeAlias, assert_never

from carina_dra.kube.event import ObjectReference
from carina_dra.kube.event_recorder import EventRecorder
from controller.engine.explain import Turn
from controller.observe.group_registry import GROUPS
from controller.observe.set_aside import SetAsideObjects
from controller.report.notice import (
    DEGRADED,
    REFUSED,
    EventText,
    GroupDegraded,
    GroupRefused,
    GroupWaits,
    Notice,
    event_text,
)
from controller.report.rate import TokenBucket

PODS_NAMED: Final = 3
"""How many pods of a group have its Event."""
RATE: Final = 10.0
"""Events about groups, a second."""
BURST: Final = 150
NAMESPACE_RATE: Final = 5.0
"""Events about the groups of one namespace, a second."""
NAMESPACE_BURST: Final = 60
_NAMESPACES: Final = 10_000
"""Namespaces whose rate is remembered."""
TEXT_INTERVAL: Final = 60.0
"""Seconds between two Events of a group with the same reason and other texts."""
REPEAT_INTERVAL: Final = 3000.0
"""Seconds after which the same text is repeated: the API server drops Events after an hour."""

GroupNotice: TypeAlias = GroupWaits | GroupRefused | GroupDegraded


@dataclass(frozen=True, slots=True)
class _Told:
    """What the last Event of a group said, and when."""

    notice: GroupNotice
    at: float


class GroupEvents:
    """Records what becomes of groups. Used by one thread."""

    def __init__(
        self,
        recorder: EventRecorder,
        *,
        rate: float = RATE,
        burst: int = BURST,
        set_aside: SetAsideObjects | None = None,
    ) -> None:
        """set_aside: keeps groups of which nothing can be told."""
        self._set_aside = SetAsideObjects() if set_aside is None else set_aside
        self._recorder = recorder
        self._bucket = TokenBucket(rate=rate, burst=burst)
        self._of_namespace: dict[str, TokenBucket] = {}
        self._told: dict[str, _Told] = {}
        self._told_degraded: dict[str, _Told] = {}

    def record(self, regarding: ObjectReference, notice: Notice) -> None:
        """Records an Event about one object, at once."""
        self._record(regarding, event_text(notice, regarding.namespace))

    def _record(self, regarding: ObjectReference, text: EventText) -> None:
        self._recorder.record(regarding, text.type, text.reason, text.note, action=text.action)

    def report(
        self,
        groups: Mapping[str, GroupNotice],
        pods_of: Callable[[str], Iterable[ObjectReference]],
        now: float,
        turn_of: Callable[[str], Turn | None] = lambda _: None,
    ) -> bool:
        """Records what is new about groups. `now` is in seconds of any steady clock.

        groups: all groups that wait or are refused now, by key.
        pods_of: the pods of a group that have no place; the first few get the Event.
        turn_of: the place of a group in its queue.
        Returns whether something was left out to keep the rate: then it is due in a later call.
        """
        return self._report(self._told, groups, pods_of, now, turn_of)

    def report_degraded(
        self,
        groups: Mapping[str, GroupNotice],
        pods_of: Callable[[str], Iterable[ObjectReference]],
        now: float,
    ) -> bool:
        """Records what is new about groups that are degraded, as `report` does, at one rate.

        pods_of: the pods of a group with a device that has failed.
        """
        return self._report(self._told_degraded, groups, pods_of, now, lambda _: None)

    def _report(
        self,
        told: dict[str, _Told],
        groups: Mapping[str, GroupNotice],
        pods_of: Callable[[str], Iterable[ObjectReference]],
        now: float,
        turn_of: Callable[[str], Turn | None],
    ) -> bool:
        for key in told.keys() - groups.keys():
            del told[key]
        is_left_out = False
        for key, notice in in_turn_of_namespaces(_due(told, groups, now)):
            pods: list[ObjectReference] = []
            if not self._attempt(key, "named", partial(_take_first, pods, pods_of, key)):
                continue
            bucket = self._bucket_of(key.partition("/")[0])
            if bucket.wait(now, len(pods)) > 0:
                is_left_out = True
                continue
            if not self._bucket.take(now, len(pods)):
                return True
            bucket.take(now, len(pods))
            told[key] = _Told(notice, now)
            if pods:
                self._attempt(key, "told", partial(self._tell, key, notice, pods, turn_of))
        return is_left_out

    def _attempt(self, key: str, doing: str, work: Callable[[], None]) -> bool:
        return self._set_aside.attempt_when_due(GROUPS, key, doing, work)

    def _tell(
        self,
        key: str,
        notice: GroupNotice,
        pods: Iterable[ObjectReference],
        turn_of: Callable[[str], Turn | None],
    ) -> None:
        turn = turn_of(key)
        for pod in pods:
            self._record(pod, event_text(notice, pod.namespace, turn))

    def _bucket_of(self, namespace: str) -> TokenBucket:
        known = self._of_namespace.get(namespace)
        if known is None:
            if len(self._of_namespace) >= _NAMESPACES:
                self._of_namespace.clear()
            known = TokenBucket(rate=NAMESPACE_RATE, burst=NAMESPACE_BURST)
            self._of_namespace[namespace] = known
        return known


def _due(
    told_before: Mapping[str, _Told], groups: Mapping[str, GroupNotice], now: float
) -> Iterator[tuple[str, GroupNotice]]:
    """The groups that have something to say, those with another reason first."""
    later = []
    for key, notice in groups.items():
        told = told_before.get(key)
        if told is None or _word(told.notice) != _word(notice):
            yield key, notice
        elif now - told.at >= (REPEAT_INTERVAL if told.notice == notice else TEXT_INTERVAL):
            later.append((key, notice))
    yield from later


def in_turn_of_namespaces(
    due: Iterable[tuple[str, GroupNotice]],
) -> Iterator[tuple[str, GroupNotice]]:
    """Groups of all namespaces in turn, so that no tenant's groups delay the Events of others."""
    of_namespace: dict[str, list[tuple[str, GroupNotice]]] = {}
    for key, notice in due:
        of_namespace.setdefault(key.partition("/")[0], []).append((key, notice))
    for together in zip_longest(*of_namespace.values()):
        yield from filter(None, together)


def _take_first(
    pods: list[ObjectReference], pods_of: Callable[[str], Iterable[ObjectReference]], key: str
) -> None:
    pods.extend(islice(pods_of(key), PODS_NAMED))


def _word(notice: GroupNotice) -> str:
    match notice:
        case GroupWaits(word=word):
            return word
        case GroupRefused():
            return REFUSED
        case GroupDegraded():
            return DEGRADED
    assert_never(notice)
