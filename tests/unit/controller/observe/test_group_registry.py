"""Which groups there are, and what changes which of them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.body import Body
from controller.api.pod_group import DeclaredGroup
from controller.api.queue import DeclaredQueue
from controller.engine.files.namespaces import Namespaces
from controller.engine.files.priorities import Priorities
from controller.engine.model.group import Group, PodSet
from controller.engine.model.queue import Queue
from controller.names import MIN_COUNT_ANNOTATION, STARTED_WITH_ANNOTATION
from controller.observe.group_registry import GroupRegistry
from controller.observe.last_evictions import LastEvictions
from controller.observe.owner import Owner, OwnerKey, OwnerKind, Part, Parts
from controller.observe.pod import ObservedPod, read_pod
from tests.unit.controller.bodies import JOB, declared_queue, pod_body
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.scene import NOW

GATE = "scheduling.carina.dev/queue"
SET: Body = {**JOB, "apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db"}
DB = OwnerKey(OwnerKind.STATEFUL_SET, "t", "db")


def pod(name: str, **fields: Any) -> ObservedPod:
    return read_pod(pod_body(name, **fields))


def running(name: str, **fields: Any) -> ObservedPod:
    return pod(name, gates=(), node="n1", phase="Running", **fields)


def parallel(replicas: int) -> Owner:
    return Owner(DB, Parts((Part("", replicas),)))


def declared(least: int = 1) -> DeclaredGroup:
    return DeclaredGroup("t", "g", "u", 1, NOW, PodSet("", least))


def limited(*namespaces: str) -> DeclaredQueue:
    return replace(declared_queue(), namespaces=Namespaces(names=namespaces))


def some_groups() -> GroupRegistry:
    """A Job, a StatefulSet, a PodGroup, a pod by itself, and one of another namespace."""
    roster = GroupRegistry()
    roster.put_queue("q", declared_queue())
    roster.put_owner(DB, parallel(3))
    roster.declare("t/g", declared())
    for each in (
        pod("train-0", owner=JOB),
        pod("train-1", owner=JOB),
        pod("db-0", owner=SET),
        pod("g-0", group="g"),
        pod("p"),
    ):
        roster.put(each)
    other = pod_body("o")
    other["metadata"]["namespace"] = "u"
    roster.put(read_pod(other))
    roster.refresh()
    return roster


ALL = {"t/job/train", "t/statefulset/db", "t/g", "t/pod/p", "u/pod/o"}


def test_a_group_of_a_priority_that_its_queue_does_not_allow_is_refused() -> None:
    roster = some_groups()
    roster.put_queue("q", replace(declared_queue(), priorities=Priorities(max=5)))
    roster.put(pod("p", priority=6))
    roster.refresh()
    assert roster.refused.keys() == {"t/pod/p"}
    assert "does not allow pods of priority 6" in roster.refused["t/pod/p"]


def test_what_runs_counts_with_the_priority_that_its_queue_has_come_to_allow() -> None:
    roster = some_groups()
    roster.put(running("p", priority=6))
    roster.refresh()
    roster.put_queue("q", replace(declared_queue(), priorities=Priorities(max=5)))
    roster.refresh()
    assert roster.groups["t/pod/p"].priority == 5


def test_every_pod_of_a_queue_is_in_a_group() -> None:
    roster = some_groups()
    assert roster.groups.keys() == ALL
    assert roster.refused == {}
    assert roster.pods_of("t/job/train") == ["t/train-0", "t/train-1"]
    assert roster.group_of("t/db-0") == "t/statefulset/db"


@pytest.mark.parametrize(
    ("change", "changed"),
    [
        (lambda it: it.put(pod("train-0", owner=JOB)), set()),
        (lambda it: it.put(pod("train-2", owner=JOB)), set()),
        (lambda it: it.put(running("train-0", owner=JOB)), {"t/job/train"}),
        (lambda it: it.put(pod("train-2", owner=JOB, priority=7)), {"t/job/train"}),
        (lambda it: it.remove("t/train-0"), set()),
        (lambda it: it.remove("t/p"), {"t/pod/p"}),
        (lambda it: it.remove("t/unknown"), set()),
        (lambda it: it.put(pod("p", owner=JOB)), {"t/pod/p"}),
        (lambda it: it.put(pod("db-0")), {"t/statefulset/db", "t/pod/db-0"}),
        (lambda it: it.put_owner(DB, parallel(4)), {"t/statefulset/db"}),
        (lambda it: it.put_owner(DB, parallel(3)), set()),
        (lambda it: it.put_owner(DB, None), {"t/statefulset/db"}),
        (lambda it: it.put_owner(replace(DB, name="other"), None), set()),
        (lambda it: it.declare("t/g", declared(2)), {"t/g"}),
        (lambda it: it.declare("t/g", declared()), set()),
        (lambda it: it.declare("t/g", None), {"t/g"}),
        (lambda it: it.declare("t/other", declared()), set()),
        (lambda it: it.put_queue("q", declared_queue()), set()),
        (lambda it: it.put_queue("q", limited("t")), {"u/pod/o"}),
        (lambda it: it.put_queue("other", DeclaredQueue(Queue("other"), "u", 1)), set()),
        (lambda it: it.put_namespace("t", {"tier": "a"}), set()),
        (lambda it: it.note_evicted(it.members("t/g")[0], NOW), {"t/g"}),
        (lambda it: it.note_stale(["t/g"], NOW), {"t/g"}),
    ],
    ids=[
        "a pod as it is",
        "a further pod",
        "a pod starts",
        "a pod of another priority",
        "one of two pods goes",
        "the only pod goes",
        "an unknown pod goes",
        "a pod gets an owner",
        "a pod loses its owner",
        "an owner needs more",
        "an owner as it is",
        "an owner goes",
        "an unknown owner goes",
        "a PodGroup needs more",
        "a PodGroup as it is",
        "a PodGroup goes",
        "another PodGroup",
        "a queue as it is",
        "a queue for one namespace",
        "another queue",
        "labels that no queue asks for",
        "an eviction",
        "a stale group",
    ],
)
def test_what_changes_which_group(
    change: Callable[[GroupRegistry], object], changed: set[str]
) -> None:
    roster = some_groups()
    change(roster)
    assert roster.refresh().keys() == changed
    assert roster.refresh() == {}


def test_a_group_that_is_refused_is_charged_until_it_can_be_decided_on() -> None:
    roster = some_groups()
    before = roster.groups["t/g"]
    roster.turned.clear()
    roster.declare("t/g", None)
    roster.refresh()
    assert (set(roster.refused), set(roster.turned)) == ({"t/g"}, {"t/g"})
    assert roster.groups["t/g"].root == PodSet("", 0)
    roster.turned.clear()
    roster.declare("t/g", declared())
    roster.refresh()
    assert (roster.refused, set(roster.turned)) == ({}, {"t/g"})
    assert roster.groups["t/g"] == before


def test_what_is_known_of_a_group_ends_with_its_last_pod() -> None:
    roster = some_groups()
    roster.note_evicted(pod("p"), NOW)
    roster.refresh()
    roster.remove("t/p")
    roster.refresh()
    roster.put(pod("p"))
    roster.refresh()
    assert roster.groups["t/pod/p"].evicted is None


def test_the_last_eviction_of_a_pod_group_is_known_as_long_as_the_pod_group_is_there() -> None:
    """A JobSet deletes all Jobs of a group, and makes others, before it has pods again."""
    roster = some_groups()
    roster.note_evicted(roster.members("t/g")[0], NOW)
    roster.remove("t/g-0")
    roster.refresh()
    roster.put(pod("g-0", group="g"))
    roster.refresh()
    assert roster.groups["t/g"].evicted == NOW
    roster.remove("t/g-0")
    roster.declare("t/g", None)
    roster.refresh()
    roster.declare("t/g", declared())
    roster.put(pod("g-0", group="g"))
    roster.refresh()
    assert roster.groups["t/g"].evicted is None


def leaves_its_device(name: str, at: float) -> ObservedPod:
    """A pod of the Job that runs, and that kube-controller-manager evicts for its device."""
    return replace(running(name, owner=JOB), device_eviction=at)


def lost_to_its_device(roster: GroupRegistry) -> float | None:
    roster.refresh()
    return roster.groups["t/job/train"].device_eviction


def test_a_group_remembers_that_a_pod_of_it_was_evicted_for_its_device() -> None:
    roster = some_groups()
    assert lost_to_its_device(roster) is None
    roster.put(leaves_its_device("train-0", NOW))
    assert lost_to_its_device(roster) == NOW
    roster.remove("t/train-0")
    assert lost_to_its_device(roster) == NOW


def test_so_it_does_if_the_controller_evicts_the_pod() -> None:
    roster = some_groups()
    roster.note_device_eviction(roster.members("t/job/train")[0], NOW)
    assert lost_to_its_device(roster) == NOW
    assert roster.groups["t/job/train"].evicted is None


def test_it_is_forgotten_once_another_pod_has_started() -> None:
    roster = some_groups()
    roster.put(leaves_its_device("train-0", NOW))
    roster.put(running("train-1", owner=JOB))
    roster.put(leaves_its_device("train-0", NOW))
    assert lost_to_its_device(roster) is None


@pytest.mark.parametrize("first", ["train-0", "train-1"])
def test_a_new_leader_sees_that_another_pod_has_started_since(first: str) -> None:
    roster = some_groups()
    for name in ("train-0", "train-1"):
        roster.remove(f"t/{name}")
    leaving = leaves_its_device("train-0", NOW)
    started = replace(running("train-1", owner=JOB), scheduled=NOW + 5)
    for member in sorted((leaving, started), key=lambda member: member.name != first):
        roster.put(member)
    assert lost_to_its_device(roster) is None


def test_it_is_forgotten_with_the_last_pod() -> None:
    roster = some_groups()
    roster.put(leaves_its_device("train-0", NOW))
    for name in ("train-0", "train-1"):
        roster.remove(f"t/{name}")
    roster.put(pod("train-2", owner=JOB))
    assert lost_to_its_device(roster) is None


REPLICAS: Body = {**JOB, "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web"}


@pytest.mark.parametrize(
    ("owner", "evicted", "group"),
    [(REPLICAS, "web-old", "t/pod/web-new"), (JOB, "train-old", "t/job/train")],
    ids=["a ReplicaSet", "a Job with one pod"],
)
def test_a_pod_that_its_owner_makes_after_an_eviction_is_known_to_replace_it(
    owner: Body, evicted: str, group: str
) -> None:
    """Otherwise it could be moved again at once, and its successor, again and again."""
    roster = some_groups()
    for name in ("train-0", "train-1"):
        roster.remove(f"t/{name}")
    roster.put(running(evicted, owner=owner))
    roster.refresh()
    roster.note_evicted(running(evicted, owner=owner), NOW)
    roster.remove(f"t/{evicted}")
    roster.refresh()
    roster.put(pod(evicted.replace("old", "new"), owner=owner))
    roster.refresh()
    assert roster.groups[group].evicted == NOW


def test_pods_that_were_there_before_an_eviction_replace_nobody() -> None:
    roster = some_groups()
    for name in ("web-0", "web-1"):
        roster.put(running(name, owner=REPLICAS))
    roster.note_evicted(running("web-0", owner=REPLICAS), NOW)
    roster.put(running("web-1", owner=REPLICAS))
    roster.refresh()
    assert roster.groups["t/pod/web-1"].evicted is None


def test_evictions_of_owners_are_forgotten_after_a_day() -> None:
    known = LastEvictions()
    for day in range(9):
        owner = {**REPLICAS, "uid": f"set-{day}"}
        known.note(f"t/pod/p{day}", running(f"p{day}", owner=owner), NOW + day * 86_400)
        known.end(f"t/pod/p{day}")
    assert len(known) == 1


# Minimums ----------------------------------------------------------------------------------------


def scaled(*pods: ObservedPod) -> GroupRegistry:
    """A StatefulSet whose three pods run; then it is scaled to five, and has these pods too."""
    roster = GroupRegistry()
    roster.put_queue("q", declared_queue())
    roster.put_owner(DB, parallel(3))
    for number in range(3):
        roster.put(running(f"db-{number}", owner=SET))
    roster.refresh()
    roster.put_owner(DB, parallel(5))
    roster.refresh()
    for each in pods:
        roster.put(each)
        roster.refresh()
    return roster


def least(roster: GroupRegistry) -> int:
    roster.refresh()
    [group] = roster.groups.values()
    assert isinstance(group.root, PodSet)
    return group.root.min_count


def test_a_group_that_is_scaled_up_needs_no_more_than_it_has() -> None:
    assert least(scaled()) == 3
    assert least(scaled(pod("db-3", owner=SET), running("db-4", owner=SET))) == 3


def test_a_group_that_is_scaled_up_keeps_when_its_minimum_started() -> None:
    roster = scaled()
    assert roster.groups["t/statefulset/db"].started is not None


def test_it_needs_all_of_them_once_they_run() -> None:
    roster = scaled(running("db-3", owner=SET), running("db-4", owner=SET))
    assert least(roster) == 5
    roster.remove("t/db-0")
    assert least(roster) == 5


def test_a_group_that_loses_pods_while_it_grows_lacks_them() -> None:
    roster = scaled()
    roster.remove("t/db-0")
    assert least(roster) == 3


def test_a_group_that_is_refused_meanwhile_has_not_reached_what_it_is_asked_for() -> None:
    roster = scaled(pod("db-3", owner=SET, priority=7))
    assert least(roster) == 0
    roster.remove("t/db-3")
    assert least(roster) == 3


def test_a_group_that_loses_all_of_its_pods_starts_as_a_whole_again() -> None:
    roster = scaled()
    for number in range(3):
        roster.remove(f"t/db-{number}")
    roster.put(pod("db-0", owner=SET))
    assert least(roster) == 5


@pytest.mark.parametrize(("needed", "kept"), [("3", 3), ("5", 5)])
def test_a_controller_that_starts_anew_learns_from_pods_what_they_needed(
    needed: str, kept: int
) -> None:
    roster = GroupRegistry()
    roster.put_queue("q", declared_queue())
    roster.put_owner(DB, parallel(5))
    for number in range(3):
        annotations = {STARTED_WITH_ANNOTATION: needed}
        roster.put(running(f"db-{number}", owner=SET, annotations=annotations))
    assert least(roster) == kept


@pytest.mark.parametrize(
    ("replicas", "needed", "started"),
    [(1, "1", 10), (3, "3", 10), (4, "4", None), (4, "1", 10), (3, None, 10), (1, "3", 10)],
    ids=[
        "it needs one",
        "it needs all",
        "it needs more than run",
        "it needs more than at first",
        "it does not say",
        "it needs less than at first",
    ],
)
def test_a_group_has_started_with_its_first_pod_if_those_run_that_it_needed_at_first(
    replicas: int, needed: str | None, started: float | None
) -> None:
    roster = GroupRegistry()
    roster.put_queue("q", declared_queue())
    roster.put_owner(DB, parallel(replicas))
    said = {} if needed is None else {STARTED_WITH_ANNOTATION: needed}
    for number, annotations in enumerate((said, {STARTED_WITH_ANNOTATION: "3"}, {})):
        each = running(f"db-{number}", owner=SET, annotations=annotations)
        roster.put(replace(each, scheduled=10.0 * (number + 1)))
    roster.refresh()
    assert roster.groups["t/statefulset/db"].started == started


# However it has come to this ---------------------------------------------------------------------


@dataclass
class Objects:
    """Objects that come, change and go, and a roster that is told."""

    rng: Random
    roster: GroupRegistry = field(default_factory=GroupRegistry)
    found: dict[str, Group] = field(default_factory=dict)
    """The groups by what `refresh` has said."""
    live: dict[tuple[str, Any], Callable[[GroupRegistry], object]] = field(default_factory=dict)
    """By kind and name: how a roster is told of an object."""

    def change(self) -> None:
        rng = self.rng
        kinds = (self._pod, self._pod, self._owner, self._group, self._queue)
        key, tell, forget = rng.choice(kinds)()
        if rng.random() < 0.25:
            self.live.pop(key, None)
            forget(self.roster)
        else:
            self.live[key] = tell
            tell(self.roster)

    def refresh(self) -> None:
        for key, group in self.roster.refresh().items():
            if group is None:
                del self.found[key]
            else:
                self.found[key] = group

    def _pod(self) -> Any:
        rng = self.rng
        name = rng.choice("abcd")
        made = pod(
            name,
            queue=rng.choice("qqr"),
            gates=rng.choice(((), (GATE,))),
            node=rng.choice((None, "n1")),
            group=rng.choice((None, None, "g", "h")),
            owner=rng.choice((None, JOB, SET)),
            priority=rng.choice((0, 0, 0, 7)),
            phase=rng.choice(("Running", "Running", "Succeeded", "Failed")),
            annotations=rng.choice(({}, {MIN_COUNT_ANNOTATION: "2"}, {MIN_COUNT_ANNOTATION: "x"})),
        )
        return ("pod", name), lambda it: it.put(made), lambda it: it.remove(f"t/{name}")

    def _owner(self) -> Any:
        made = parallel(self.rng.choice((1, 2, 3)))
        return ("owner", DB), lambda it: it.put_owner(DB, made), lambda it: it.put_owner(DB, None)

    def _group(self) -> Any:
        made = declared(self.rng.choice((1, 2)))
        key = f"t/{self.rng.choice('gh')}"
        return ("group", key), lambda it: it.declare(key, made), lambda it: it.declare(key, None)

    def _queue(self) -> Any:
        name = self.rng.choice("qr")
        made = declared_queue(name, quota=self.rng.choice((None, 1)))
        return (
            ("queue", name),
            lambda it: it.put_queue(name, made),
            lambda it: it.put_queue(name, None),
        )


def timeless(roster: GroupRegistry) -> dict[str, Group]:
    """The groups without what depends on their history: the minimums of those that have started."""
    return {
        key: replace(group, root=PodSet("", 0), started=None)
        if any(each.started for each in roster.members(key))
        else group
        for key, group in roster.groups.items()
    }


@examples(300)
@given(st.randoms(use_true_random=False))
def test_a_roster_is_as_one_that_is_made_of_the_last_objects(rng: Random) -> None:
    objects = Objects(rng)
    for _ in range(rng.randrange(40)):
        rng.choice((objects.change, objects.change, objects.refresh))()
    objects.refresh()
    fresh = GroupRegistry()
    last = list(objects.live.values())
    rng.shuffle(last)
    for tell in last:
        tell(fresh)
    fresh.refresh()
    assert objects.found == objects.roster.groups
    assert timeless(objects.roster) == timeless(fresh)
    assert objects.roster.refused.keys() == fresh.refused.keys()
    for key in fresh.groups:
        assert set(objects.roster.pods_of(key)) == set(fresh.pods_of(key))
    assert objects.roster._roots.keys() <= fresh.groups.keys()
    assert not objects.roster.refresh()


def test_pods_that_name_different_queues_are_no_group() -> None:
    roster = some_groups()
    roster.put(pod("stray", queue="b", owner=JOB))
    roster.refresh()
    singles = {"t/pod/stray", "t/pod/train-0", "t/pod/train-1"}
    assert roster.refused.keys() == {"t/job/train", *singles}
    assert "name different queues" in roster.refused["t/pod/stray"]
    assert roster.groups.keys() == ALL - {"t/job/train"} | singles


def test_each_queue_is_charged_for_its_own_pods_when_they_come_to_name_one_owner() -> None:
    roster = some_groups()
    roster.put(running("db-0", queue="b"))
    roster.put(running("train-0", owner=JOB))
    roster.refresh()
    roster.put(running("db-0", queue="b", owner=JOB, version=2))
    roster.refresh()
    charged = {name: roster.groups[roster.group_of(name) or ""].queue for name in roster._group_of}
    assert charged["t/db-0"] == "b"
    assert charged["t/train-0"] == "q"
    assert roster.turned.keys() >= {"t/pod/db-0", "t/pod/train-0"}


def test_pods_are_a_group_again_once_they_name_one_queue() -> None:
    roster = some_groups()
    roster.put(pod("stray", queue="b", owner=JOB))
    roster.refresh()
    roster.turned.clear()
    roster.remove("t/stray")
    roster.refresh()
    assert roster.groups.keys() == ALL
    assert roster.refused == {}
    assert "t/job/train" in roster.turned
    assert roster.pods_of("t/job/train") == ["t/train-0", "t/train-1"]


def test_a_group_does_not_start_again_when_one_pod_after_the_other_is_replaced() -> None:
    roster = GroupRegistry()
    roster.put_queue("q", declared_queue())
    roster.declare("t/g", declared(2))
    for at in range(6):
        each = running(f"p{at}", group="g", annotations={STARTED_WITH_ANNOTATION: "2"})
        roster.put(replace(each, scheduled=10.0 * at))
        if at > 1:
            roster.remove(f"t/p{at - 1}")
        roster.refresh()
    assert roster.groups["t/g"].started == 0


def test_what_runs_of_a_group_that_is_refused_is_charged_as_what_it_started_as() -> None:
    roster = some_groups()
    roster.put(pod("a", owner=JOB, priority=9))
    roster.remove("t/train-1")
    roster.put(running("train-0", owner=JOB))
    roster.refresh()
    assert "different priorities" in roster.refused["t/job/train"]
    assert roster.groups["t/job/train"].priority == 0
