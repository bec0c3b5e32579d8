"""Events about groups: when, on which objects, and how many."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from carina_dra.kube.api_resource import EVENTS, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.event import EventType, ObjectReference, ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from controller.engine.explain import Turn
from controller.engine.model.plan import Action, Eviction
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


@pytest.mark.parametrize("fails", ["pods", "turn", "event"])
def test_a_group_of_which_nothing_can_be_told_keeps_no_other_from_its_events(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch, fails: str
) -> None:
    def defect(what: str, group: str) -> None:
        if (what, group) == (fails, "t/bad"):
            raise RuntimeError("a defect")

    def pods(group: str) -> list[ObjectReference]:
        defect("pods", group)
        return pods_of(group)[:1]

    def turn(group: str) -> None:
        defect("turn", group)

    record = cluster.recorder.record

    def recording(regarding: ObjectReference, *arguments: Any, **named: Any) -> None:
        defect("event", f"t/{regarding.name[:-2]}")
        record(regarding, *arguments, **named)

    monkeypatch.setattr(cluster.recorder, "record", recording)
    GroupEvents(cluster.recorder).report(
        {f"t/{name}": waits(group=f"t/{name}") for name in ("bad", "good")}, pods, 0, turn
    )
    assert [name for name, _ in cluster.notes()] == ["good-0"]


def test_an_event_that_cannot_be_written_keeps_no_other_from_being_so(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = cluster.client.create

    def creating(resource: ApiResource, body: Body, **named: Any) -> Body:
        if body["regarding"]["name"] == "bad-0":
            raise RuntimeError("a defect")
        return create(resource, body, **named)

    monkeypatch.setattr(cluster.client, "create", creating)
    GroupEvents(cluster.recorder).report(
        {f"t/{name}": waits(group=f"t/{name}") for name in ("bad", "good")},
        lambda group: pods_of(group)[:1],
        0,
    )
    assert [name for name, _ in cluster.notes()] == ["good-0"]
    assert cluster.recorder.dropped == 1


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


def test_the_groups_of_one_namespace_do_not_delay_the_events_of_another(cluster: Cluster) -> None:
    events = GroupEvents(cluster.recorder, rate=1, burst=6)
    groups = {f"hostile/g{index}": waits(group=f"hostile/g{index}") for index in range(500)}
    groups["quiet/train"] = waits(group="quiet/train")
    events.report(groups, pods_of, 0)
    assert "train" in {name.partition("-")[0] for name, _ in cluster.notes()}


def test_an_event_says_the_place_in_the_queue_and_what_would_help(cluster: Cluster) -> None:
    notice = GroupWaits("t/g", "NoRoom", "no room", "add nodes")
    GroupEvents(cluster.recorder).report(
        {"t/g": notice}, lambda group: pods_of(group)[:1], 0, lambda _: Turn(3, 12)
    )
    ((_, note),) = cluster.notes()
    assert note == (
        "group t/g waits: no room. It is number 3 of 12 that wait in its queue. "
        "What helps: add nodes"
    )


def test_what_its_user_has_to_change_is_a_warning() -> None:
    notice = GroupWaits("t/g", "BadClaim", "no class", "correct the claim", is_for_user=True)
    assert event_text(notice, "t").type is EventType.WARNING


_OTHERS: list[Notice] = [
    PodEvicted(Eviction("t/p", "n", action, "secret/name", 30), "q") for action in Action
]
_OTHERS += [DoubleAllocation("d/p/gpu-0", "secret/name"), DeviceLost("d/p/gpu-0", "secret/name")]


@pytest.mark.parametrize("kind", [DoubleAllocation, DeviceLost])
def test_a_claim_of_the_same_namespace_that_keeps_a_device_is_named(
    kind: type[DoubleAllocation | DeviceLost],
) -> None:
    assert "; claim t/other keeps it" in event_text(kind("d/p/gpu-0", "t/other"), "t").note


@pytest.mark.parametrize("notice", _OTHERS)
def test_no_event_names_what_another_namespace_has(notice: Notice) -> None:
    assert "secret" not in event_text(notice, "t").note


@pytest.mark.parametrize(
    ("notice", "event_type", "reason", "note"),
    [
        (GroupRefused("name one queue"), EventType.WARNING, "Refused", "name one queue"),
        (
            PodEvicted(Eviction("t/p", "n", Action.RECLAIM, "u/train", 30), "prod"),
            EventType.NORMAL,
            "Evicted",
            (
                "its queue has more than its fair share, and a group of queue prod is within that "
                "of its own"
            ),
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.PREEMPT, "t/train", 30), "q"),
            EventType.NORMAL,
            "Evicted",
            "group t/train has a higher priority in its queue",
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.PREEMPT, "t/train", 30, overran=True), "q"),
            EventType.NORMAL,
            "Evicted",
            "it runs for longer than it declared, and group t/train waits with a reservation",
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.CONSOLIDATE, "t/train", 30, moves=True), "q"),
            EventType.NORMAL,
            "Evicted",
            (
                "moves to another node, so that group t/train has room; a place there is kept for "
                "the pod that replaces it"
            ),
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.DRAIN, "t/g", 30), "q"),
            EventType.NORMAL,
            "Evicted",
            "its queue is being emptied, by order of an administrator",
        ),
        (
            PodEvicted(Eviction("t/p", "n", Action.STALE, "t/g", 30), "q"),
            EventType.NORMAL,
            "Evicted",
            "group t/g has fewer pods than it needs",
        ),
        (
            DoubleAllocation("gpu.carina.dev/n/gpu-0", "t/other"),
            EventType.WARNING,
            "DoubleAllocation",
            (
                "device gpu.carina.dev/n/gpu-0 was allocated twice; claim t/other keeps it, and "
                "what uses this claim has to leave"
            ),
        ),
        (
            DeviceLost("gpu.carina.dev/n/gpu-0", "u/other"),
            EventType.WARNING,
            "DoubleAllocation",
            (
                "device gpu.carina.dev/n/gpu-0 was allocated twice; a claim of another namespace "
                "keeps it, and no controller replaces this pod: delete it, and create it again"
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
    text = event_text(notice, "t")
    assert (text.type, text.reason, text.note) == (event_type, reason, note)
