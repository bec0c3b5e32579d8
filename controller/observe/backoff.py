"""What is refused of starts is learned once: back-off by owner and template, and by namespace.

kube-scheduler refuses pods that were started, and the API server some writes of a start. Pods of
one owner that are made from one template are a *line*: what is said of one of
them holds for the others, and for those that replace them. A line that was refused has its pods
tried one group at a time, later and later, until one is bound. Nobody is evicted for it before
`LONGEST` has passed since its last refusal.

New names do not reset that: once several lines of a namespace were refused in a queue, each further
line there waits for a turn of its own before its first attempt. The account is that of a namespace
in a queue, so the other namespaces of the queue do not notice.

Where kube-scheduler chooses devices for a pod, others wait for its choice. If that does not come,
as for a pod that names a scheduler which does not exist, no such pods of the namespace in the queue
are started for many times as long, unless the choice comes yet: nobody makes others wait again and
again.

The back-off of a line also ends when an object changes that the refusal names, such as a volume
that is there now. Its tenant may write that object all the time, so what ends in that way for a
namespace in a queue ends there again later and later; the next refusal is followed by the back-off
that would have been due anyhow.
"""

import heapq
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice
from math import inf
from typing import Final, NamedTuple

from controller.engine.model.group import SchedulerRefusal
from controller.observe.pod import ObservedPod

_FIRST: Final = 10.0
"""Seconds before the second attempt after a refusal; the first is made at once, by one group."""
LONGEST: Final = 900.0
"""Seconds of the longest back-off."""
_FREE_LINES: Final = 3
"""How many lines of a namespace may be refused before new ones wait for their first attempt."""
_LINES: Final = 1000
"""How many refused lines of a namespace in a queue are remembered of which no pod is there."""
_ACCEPTED: Final = 1000
"""How many accepted lines of such a namespace are remembered."""
_LONGEST_WORDS: Final = 1000
_LONGEST_TURN: Final = 60.0
"""Seconds between the first attempts of two new lines of such a namespace."""
_FIRST_CHANGE: Final = 60.0
"""Seconds after which changes of objects count again for a namespace; they double each time."""
_TIMES_UNANSWERED: Final = 20
"""Nobody waits again for this number of times as long as others have waited in vain."""
_UNANSWERED: Final = "kube-scheduler: it has not chosen the devices of a pod of its namespace yet"
_NAMES: Final = 16
"""How many of the objects that a refusal names are looked at."""
_NAMED: Final = re.compile(r'"([^"]{1,253})"')
"""An object as kube-scheduler names it."""
_HIGHEST: Final = 16
"""The level from which on the back-off is `LONGEST` in any case."""


class NamespaceInQueue(NamedTuple):
    """A namespace in a queue."""

    queue: str
    namespace: str


class Line(NamedTuple):
    """The pods of one owner that are made from one template; a pod without an owner by itself."""

    account: NamespaceInQueue
    owner: str
    template: int


def line_of(pod: ObservedPod) -> Line:
    """The line of a pod that names a queue."""
    owner = pod.uid if pod.owner is None else pod.owner.uid
    return Line(NamespaceInQueue(pod.queue or "", pod.namespace), owner, pod.template)


def is_accepted(before: ObservedPod, pod: ObservedPod) -> bool:
    """Whether kube-scheduler has bound a pod since it was seen last."""
    return before.node is None and pod.node is not None


@dataclass(slots=True)
class _Refused:
    """A line that was refused, or that waits for its first attempt."""

    words: str
    last: float
    """When it was refused last, as a Unix time."""
    retry_at: float
    """When one of its groups is tried again, as a Unix time."""
    evicts_at: float
    """When others may be evicted for it again, as a Unix time."""
    level: int = 0
    """How often an attempt was refused."""
    names: tuple[str, ...] = ()
    """The objects that the last refusal names."""
    probe: str | None = None
    """The group that is tried."""
    earlier: frozenset[str] = frozenset()
    """The pods of this group that had been started before."""
    groups: dict[str, dict[str, bool]] = field(default_factory=dict)
    """By group, the oldest first: its pods, and whether they wait for their start."""
    avoided: dict[str, float] = field(default_factory=dict)
    """The nodes that refused it, and until when they are avoided."""


@dataclass(slots=True)
class _Tally:
    """What a namespace in a queue has to its account."""

    level: int = 0
    """How many lines were refused, less those that were accepted since."""
    last: float = 0.0
    """When a line was refused last."""
    turn: float = 0.0
    """When the next new line is tried."""
    changes: int = 0
    """How often back-offs have ended early since an object had changed."""
    next_change: float = 0.0
    """When they may do so again, as a Unix time."""
    unanswered: dict[str, float] = field(default_factory=dict)
    """By UID of pods whose devices were not chosen: until when no others are to be chosen."""
    lines: dict[Line, None] = field(default_factory=dict)
    accepted: dict[Line, None] = field(default_factory=dict)
    """Of these, pods are bound or were."""

    @property
    def chooses_at(self) -> float:
        """When devices are to be chosen for pods again, as a Unix time."""
        return max(self.unanswered.values(), default=0.0)


class Backoffs:
    """Which groups are held back because of what kube-scheduler says. Used by one thread."""

    def __init__(self) -> None:
        self.changed: dict[str, None] = {}
        """The groups whose refusal may be another one since the last look at this."""
        self._refused: dict[Line, _Refused] = {}
        self._tallies: dict[NamespaceInQueue, _Tally] = {}
        self._of_group: dict[str, dict[Line, None]] = {}
        """By group: its lines that were refused."""
        self._line_of: dict[str, tuple[Line, str]] = {}
        """By pod of a refused line: the line, and the group."""
        self._named: dict[str, dict[Line, None]] = {}
        """By the name of an object: the lines whose refusals name it."""
        self._due: list[tuple[float, Line]] = []

    def __len__(self) -> int:
        return len(self._refused) + len(self._tallies)

    # What happens ------------------------------------------------------------------------------

    def refuse(
        self,
        pod: ObservedPod,
        group: str,
        now: float,
        known: Iterable[tuple[ObservedPod, str]],
        words: str,
    ) -> None:
        """Records that the start of a pod was refused.

        known: the pods that name a queue, with their groups; looked at for a new line only.
        words: by whom, and why.
        """
        line, words = line_of(pod), words[:_LONGEST_WORDS]
        tally = self._tallies.setdefault(line.account, _Tally())
        tally.last = now
        entry = self._refused.get(line)
        if entry is None:
            entry = self._remember(line, words, now)
            for other, of_group in known:
                if line_of(other).account != line.account:
                    continue
                if other.node is not None:
                    self._note_accepted(tally, line_of(other))
                if line_of(other) == line:
                    self._join(entry, line, other, of_group)
            self._join(entry, line, pod, group)
        entry.words = words
        self._name(line, entry, dict.fromkeys(islice(_names_in(words), _NAMES)))
        is_tried = entry.probe == group and pod.key not in entry.earlier
        if entry.level > 0 and not is_tried and now < entry.last + LONGEST:
            return  # it was started before the line was known to be refused
        if entry.level == 0:
            tally.level += 1
            tally.accepted.pop(line, None)
        entry.level = min(entry.level + 1, _HIGHEST)
        entry.last, entry.probe, entry.evicts_at = now, None, now + LONGEST
        entry.retry_at = now + _delay(entry.level - 1)
        self._wake_at(entry.retry_at, line)
        self._change(entry)

    def avoid(self, pod: ObservedPod, node: str, until: float) -> None:
        """Has the line of a refused pod avoid a node until a Unix time."""
        line = line_of(pod)
        entry = self._refused.get(line)
        if entry is not None:
            entry.avoided[node] = until
            self._wake_at(until, line)
            self._change(entry)

    def note_unanswered(
        self,
        pod: ObservedPod,
        now: float,
        seconds: float,
        known: Iterable[tuple[ObservedPod, str]],
    ) -> None:
        """Records that others have waited in vain for kube-scheduler to choose devices for a pod.

        known: the pods that name a queue, with their groups; looked at if none was in vain lately.
        """
        line = line_of(pod)
        tally = self._tallies.setdefault(line.account, _Tally())
        is_known = tally.chooses_at > now
        over = [uid for uid, until in tally.unanswered.items() if until <= now]
        for uid in over:
            del tally.unanswered[uid]
        tally.unanswered[pod.uid] = now + _TIMES_UNANSWERED * seconds
        if line not in self._refused:
            self._remember_unanswered(line, now)
        if not is_known:
            for other, group in known:
                if line_of(other).account == line.account and other.is_held:
                    self.put_pod(other, group, now)

    def accept(self, pod: ObservedPod, now: float) -> None:
        """Records that kube-scheduler has bound a pod."""
        line = line_of(pod)
        tally, entry = self._tallies.get(line.account), self._refused.get(line)
        if tally is not None:
            if tally.unanswered.pop(pod.uid, None) is not None:
                for held in tally.lines:
                    self._wake_at(now, held)
            if entry is not None or line not in tally.accepted:
                tally.level = max(tally.level - 1, 0)
            self._note_accepted(tally, line)
        if entry is not None:
            self._forget(line)

    def put_pod(self, pod: ObservedPod, group: str, now: float) -> None:
        """Applies a pod that names a queue."""
        line = line_of(pod)
        if (before := self._line_of.get(pod.key)) is not None and before != (line, group):
            self.remove_pod(pod.key)
        entry = self._refused.get(line)
        if entry is None:
            tally = self._tallies.get(line.account)
            if tally is None or not pod.is_held:
                return
            if self._is_in_doubt(tally, line):
                entry = self._remember_in_doubt(line, now)
            elif pod.extended and tally.chooses_at > now:
                entry = self._remember_unanswered(line, now)
            else:
                return
        self._join(entry, line, pod, group)
        if self._is_due(entry, line, now) and _may_be_tried(pod):
            self._choose(entry, line, now)

    def remove_pod(self, pod: str) -> None:
        """Records that a pod is gone."""
        line, group = self._line_of.pop(pod, (None, ""))
        if line is None:
            return
        entry = self._refused[line]
        pods = entry.groups[group]
        del pods[pod]
        if not pods:
            self._leave(entry, line, group)
            if entry.probe == group:
                entry.probe = None  # the next attempt comes no earlier than after a refusal
                entry.retry_at = max(entry.retry_at, entry.last + _delay(entry.level))
                self._wake_at(entry.retry_at, line)
        if entry.groups:
            return
        if len(self._tallies[line.account].lines) > _LINES:
            self._forget(line)
        else:
            self._wake_at(max(entry.last + LONGEST, entry.retry_at), line)

    def object_changed(self, namespace: str, name: str, now: float) -> None:
        """Records that an object has changed: what was refused for it is tried again.

        namespace: the one whose pods can use it; empty if all can.
        """
        by_account: dict[NamespaceInQueue, list[Line]] = {}
        for line in self._named.get(name, ()):
            if not namespace or line.account.namespace == namespace:
                by_account.setdefault(line.account, []).append(line)
        for account, lines in by_account.items():
            tally = self._tallies[account]
            at = max(now, tally.next_change)
            later = [line for line in lines if self._refused[line].evicts_at > at]
            for line in later:
                entry = self._refused[line]
                entry.retry_at, entry.evicts_at = min(entry.retry_at, at), at
                self._wake_at(at, line)
            if later and at == now:
                wait = min(_FIRST_CHANGE * 2.0 ** min(tally.changes, _HIGHEST), LONGEST)
                tally.next_change, tally.changes = now + wait, tally.changes + 1

    def avoided_by(self, pod: str) -> Iterable[str]:
        """The nodes that a pod avoids."""
        line, _ = self._line_of.get(pod, (None, ""))
        return () if line is None else self._refused[line].avoided

    # What follows ------------------------------------------------------------------------------

    def refusal_of(self, group: str, now: float) -> SchedulerRefusal | None:
        """What keeps a group from being tried, or from having others evicted."""
        found = [self._refused[line] for line in self._of_group.get(group, ())]
        if not found:
            return None
        latest = max(found, key=lambda refusal: refusal.last)
        return SchedulerRefusal(
            latest.words,
            holds=any(
                refusal.probe != group and any(refusal.groups[group].values()) for refusal in found
            ),
            evicts=all(refusal.evicts_at <= now for refusal in found),
        )

    @property
    def wake(self) -> float | None:
        """When something changes by time alone, as a Unix time."""
        return self._due[0][0] if self._due else None

    def take_due(self, now: float) -> None:
        """Ends the back-offs that are due, and forgets what is long over."""
        while self._due and self._due[0][0] <= now:
            _, line = heapq.heappop(self._due)
            entry = self._refused.get(line)
            if entry is None:
                continue
            over = entry.last + LONGEST
            self._end_avoiding(entry, now)
            if not entry.groups and max(over, entry.retry_at) <= now:
                self._forget(line)
                continue
            if self._is_due(entry, line, now):
                self._choose(entry, line, now)
            if entry.probe is not None:
                self.changed[entry.probe] = None
            retry_at = self._retry_at(entry, line)
            if max(over, retry_at) > now:
                self._wake_at(over if retry_at <= now else retry_at, line)

    def _is_due(self, entry: _Refused, line: Line, now: float) -> bool:
        """Whether a group of a line is to be tried."""
        return entry.probe is None and self._retry_at(entry, line) <= now

    def _retry_at(self, entry: _Refused, line: Line) -> float:
        """When one of the groups of a line is tried again, as a Unix time."""
        return max(entry.retry_at, self._tallies[line.account].chooses_at)

    def _end_avoiding(self, entry: _Refused, now: float) -> None:
        for node in [node for node, until in entry.avoided.items() if until <= now]:
            del entry.avoided[node]
            self._change(entry)

    def _choose(self, entry: _Refused, line: Line, now: float) -> None:
        """Releases the first group of a line that waits, if there is one."""
        for group, pods in entry.groups.items():
            if any(pods.values()):
                entry.probe = group
                entry.earlier = frozenset(pod for pod, waits in pods.items() if not waits)
                self.changed[group] = None
                break
        if entry.last + LONGEST > now:
            self._wake_at(entry.last + LONGEST, line)

    def _is_in_doubt(self, tally: _Tally, line: Line) -> bool:
        """Whether a line waits for its first attempt: others of its namespace were refused."""
        return tally.level > _FREE_LINES and line not in tally.accepted

    def _remember(self, line: Line, words: str, now: float) -> _Refused:
        tally = self._tallies[line.account]
        oldest = next(iter(tally.lines), None)
        if oldest is not None and len(tally.lines) >= _LINES and not self._refused[oldest].groups:
            self._forget(oldest)  # one with pods stays: they would start at once, and evict
        tally = self._tallies.setdefault(line.account, tally)
        tally.lines[line] = None
        entry = self._refused[line] = _Refused(words, now, inf, now + LONGEST)
        return entry

    def _remember_in_doubt(self, line: Line, now: float) -> _Refused:
        """A line that waits for its turn, since others of its namespace were refused."""
        tally = self._tallies[line.account]
        words = "kube-scheduler or the API server: other pods of its namespace in this queue were"
        entry = self._remember(line, words, tally.last)
        between = min(_delay(tally.level - _FREE_LINES), _LONGEST_TURN)
        tally.turn = max(tally.turn, now) + between
        entry.retry_at = min(tally.turn, now + LONGEST)
        self._wake_at(entry.retry_at, line)
        return entry

    def _remember_unanswered(self, line: Line, now: float) -> _Refused:
        """A line that waits since devices were not chosen for a pod of its namespace."""
        entry = self._remember(line, _UNANSWERED, now)
        entry.retry_at = entry.evicts_at = now
        self._wake_at(self._retry_at(entry, line), line)
        return entry

    def _forget(self, line: Line) -> None:
        """Forgets a line, and its namespace with the last one."""
        entry = self._refused.pop(line)
        self._name(line, entry, ())
        for group, pods in entry.groups.items():
            for pod in pods:
                del self._line_of[pod]
            self._drop(line, group)
        tally = self._tallies[line.account]
        del tally.lines[line]
        if not tally.lines:
            del self._tallies[line.account]

    def _join(self, entry: _Refused, line: Line, pod: ObservedPod, group: str) -> None:
        self._line_of[pod.key] = line, group
        if group not in entry.groups:
            entry.groups[group] = {}
            self._of_group.setdefault(group, {})[line] = None
            self.changed[group] = None
        may_be_tried = _may_be_tried(pod)
        if entry.groups[group].get(pod.key) is not may_be_tried:
            entry.groups[group][pod.key] = may_be_tried
            self.changed[group] = None

    def _leave(self, entry: _Refused, line: Line, group: str) -> None:
        del entry.groups[group]
        self._drop(line, group)

    def _drop(self, line: Line, group: str) -> None:
        lines = self._of_group[group]
        del lines[line]
        if not lines:
            del self._of_group[group]
        self.changed[group] = None

    def _name(self, line: Line, entry: _Refused, names: Iterable[str]) -> None:
        """Applies the objects that a refusal names."""
        for name in entry.names:
            lines = self._named[name]
            del lines[line]
            if not lines:
                del self._named[name]
        entry.names = tuple(names)
        for name in entry.names:
            self._named.setdefault(name, {})[line] = None

    def _change(self, entry: _Refused) -> None:
        self.changed |= dict.fromkeys(entry.groups)

    def _wake_at(self, at: float, line: Line) -> None:
        heapq.heappush(self._due, (at, line))

    @staticmethod
    def _note_accepted(tally: _Tally, line: Line) -> None:
        tally.accepted[line] = None
        if len(tally.accepted) > _ACCEPTED:
            del tally.accepted[next(iter(tally.accepted))]


def _names_in(words: str) -> Iterator[str]:
    """The names in a refusal, each as it is and without its namespace."""
    for found in _NAMED.finditer(words):
        yield found[1].rpartition("/")[2]


def _may_be_tried(pod: ObservedPod) -> bool:
    """Whether a pod can be given a node; one that nobody replaces can be given another one."""
    return pod.is_waiting and (pod.is_held or not pod.is_pinned)


def _delay(level: int) -> float:
    """Seconds of the back-off of a level; none for the first."""
    return 0.0 if level <= 0 else min(_FIRST * 2.0 ** (level - 1), LONGEST)
