"""Events about groups: when, on which objects, and how many."""

from collections.abc import Iterator
from dataclasses import dataclass

import pytest

from carina_dra.kube.api_resource import EVENTS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.event import EventType, ObjectReference, ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from controller.model.plan import Action, Eviction
from controller.report.group_events import REPEAT_INTERVAL, GroupEvents, GroupNotice
from controller.report.notice import (
    DeviceLost,
    DoubleAllocation,
    GateNotRemoved,
    GroupRefused,
    GroupWaits,
    Notice,
    PodEvicted,
    event_text,
)
from simulation.api_server.server import ApiServer


def waits(word: str = "NoRoom", text: str = "no room", group: str = "t/g") -> GroupNotice:
    return GroupWaits(group, word, text)


def pods_of(group: str) -> list[ObjectReference]:
    name = group.rpartition("/")[2]
    return [ObjectReference("v1", "Pod", f"{name}-{i}", "default", f"{i}") for i in range(5)]


@dataclass
class Cluster:
    client: Client
    recorder: EventRecorder

    def events(self) -> list[Body]:
        """All Events, once they are written."""
        self.recorder.close()
        return self.client.list(EVENTS).items

    def notes(self) -> list[tuple[str, str]]:
        """Of each Event the pod and the note."""
        return sorted((one["regarding"]["name"], one["note"]) for one in self.events())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with (
        ApiServer() as server,
        Client(server.connection) as client,
        EventRecorder(client, ReportingController("carina.dev/controller", "one")) as recorder,
    ):
        yield Cluster(client, recorder)


def test_a_group_that_waits_has_an_event_on_some_of_its_pods(cluster: Cluster) -> None:
    assert not GroupEvents(cluster.recorder).report({"t/g": waits()}, pods_of, 0)
    note = "group t/g waits: no room"
    assert cluster.notes() == [("g-0", note), ("g-1", note), ("g-2", note)]


def test_the_reason_is_that_of_the_condition(cluster: Cluster) -> None:
    GroupEvents(cluster.recorder).report({"t/g": waits("OverLimit")}, pods_of, 0)
    (event, *_) = cluster.events()
    assert (event["type"], event["reason"], event["action"]) == ("Normal", "OverLimit", "Schedule")
    assert event["regarding"]["uid"] == "0"


@pytest.mark.parametrize(
    ("then", "after", "is_told"),
    [
        (waits(), 100, False),
        (waits(), REPEAT_INTERVAL, True),
        (waits(text="less room"), 59, False),
        (waits(text="less room"), 60, True),
        (waits("OverLimit"), 1, True),
        (GroupRefused("two queues"), 1, True),
    ],
)
def test_when_a_group_has_another_event(
    cluster: Cluster, then: GroupNotice, after: float, is_told: bool
) -> None:
    events = GroupEvents(cluster.recorder)
    events.report({"t/g": waits()}, lambda group: pods_of(group)[:1], 0)
    events.report({"t/g": then}, lambda group: pods_of(group)[1:2], after)
    assert [name for name, _ in cluster.notes()] == ["g-0", "g-1"][: 1 + is_told]


def test_a_group_that_waits_again_has_a_new_event(cluster: Cluster) -> None:
    events = GroupEvents(cluster.recorder)
    events.report({"t/g": waits()}, lambda group: pods_of(group)[:1], 0)
    events.report({}, pods_of, 1)
    events.report({"t/g": waits()}, lambda group: pods_of(group)[1:2], 2)
    assert [name for name, _ in cluster.notes()] == ["g-0", "g-1"]


def test_thousands_of_groups_are_told_about_at_the_rate(cluster: Cluster) -> None:
    events = GroupEvents(cluster.recorder, rate=3, burst=6)
    groups = {f"t/g{index}": waits(group=f"t/g{index}") for index in range(4_000)}
    assert events.report(groups, pods_of, 0)
    assert events.report(groups, pods_of, 0.5)
    assert events.report(groups, pods_of, 1)
    told = [name.partition("-")[0] for name, _ in cluster.notes()]
    assert told == ["g0"] * 3 + ["g1"] * 3 + ["g2"] * 3


def test_another_reason_comes_before_other_texts(cluster: Cluster) -> None:
    events = GroupEvents(cluster.recorder, rate=1, burst=3)
    events.report({"t/a": waits()}, pods_of, 0)
    groups = {"t/a": waits(text="less room"), "t/b": waits(group="t/b")}
    assert events.report(groups, pods_of, 100)
    assert {name.partition("-")[0] for name, _ in cluster.notes()[3:]} == {"b"}


@pytest.mark.parametrize(
    ("notice", "event_type", "reason", "note"),
    [
        (GroupRefused("name one queue"), EventType.WARNING, "Refused", "name one queue"),
        (
            PodEvicted(Eviction("t/p", "n", Action.RECLAIM, "u/train")),
            EventType.NORMAL,
            "Evicted",
            (
                "its queue has more than its fair share, and group u/train of another queue is "
                "within its own"
            ),
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.PREEMPT, "t/train")),
            EventType.NORMAL,
            "Evicted",
            "group t/train of its queue has a higher priority",
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.CONSOLIDATE, "t/train")),
            EventType.NORMAL,
            "Evicted",
            "moves to another node, so that group t/train has room",
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.STALE, "t/g")),
            EventType.NORMAL,
            "Evicted",
            "group t/g has fewer pods than it needs",
        ),
        (
            DoubleAllocation("gpu.carina.dev/n/gpu-0", "u/other"),
            EventType.WARNING,
            "DoubleAllocation",
            (
                "device gpu.carina.dev/n/gpu-0 was allocated twice; claim u/other keeps it, and "
                "what uses this claim has to leave"
            ),
        ),
        (
            DeviceLost("gpu.carina.dev/n/gpu-0", "u/other"),
            EventType.WARNING,
            "DoubleAllocation",
            (
                "device gpu.carina.dev/n/gpu-0 was allocated twice; claim u/other keeps it, and "
                "no controller replaces this pod: delete it, and create it again"
            ),
        ),
        (
            GateNotRemoved("forbidden"),
            EventType.WARNING,
            "GateNotRemoved",
            "its scheduling gate cannot be removed: forbidden",
        ),
    ],
)
def test_what_an_event_says(notice: Notice, event_type: EventType, reason: str, note: str) -> None:
    text = event_text(notice)
    assert (text.type, text.reason, text.note) == (event_type, reason, note)
