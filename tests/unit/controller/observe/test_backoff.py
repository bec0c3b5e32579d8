"""What kube-scheduler refuses is learned once, for an owner and a template, and for a namespace."""

from typing import Any

import pytest

from controller.engine.model.snapshot import Snapshot
from controller.engine.model.volume import VolumeClaim, VolumeClaimState
from controller.observe.backoff import LONGEST, Backoffs
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod, read_pod
from tests.unit.controller.bodies import declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene

WORDS = '0/4 nodes are available: persistentvolumeclaim "data" not found.'


def replica_set(name: str) -> dict[str, Any]:
    return {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": name} | {
        "controller": True
    }


class Pods:
    """The pods of a namespace, each a group by itself."""

    def __init__(self) -> None:
        self.backoffs = Backoffs()
        self.known: dict[str, ObservedPod] = {}

    def put(self, name: str, owner: str, now: float, **fields: Any) -> ObservedPod:
        pod = read_pod(pod_body(name, owner=replica_set(owner), **fields))
        self.known[pod.key] = pod
        self.backoffs.put_pod(pod, group_of(pod), now)
        self.backoffs.take_due(now)
        return pod

    def refuse(self, name: str, owner: str, now: float, **fields: Any) -> None:
        """A pod that was started is refused, and evicted."""
        pod = self.put(name, owner, now, gates=(), given="n1", verdict=WORDS, **fields)
        pods = [(each, group_of(each)) for each in self.known.values()]
        self.backoffs.refuse(pod, group_of(pod), now, pods, WORDS)
        self.backoffs.take_due(now)
        del self.known[pod.key]
        self.backoffs.remove_pod(pod.key)

    def holds(self, name: str, now: float) -> bool | None:
        """Whether a pod is held back; None if nothing of it was refused."""
        self.backoffs.take_due(now)
        found = self.backoffs.refusal_of(f"t/pod/{name}", now)
        return None if found is None else found.holds

    def evicts(self, name: str, now: float) -> bool:
        self.backoffs.take_due(now)
        found = self.backoffs.refusal_of(f"t/pod/{name}", now)
        return found is None or found.evicts


def group_of(pod: ObservedPod) -> str:
    return f"t/pod/{pod.name}"


def test_after_a_refusal_one_pod_of_the_owner_is_tried_at_a_time() -> None:
    pods = Pods()
    for name in ("a", "b"):
        pods.put(name, "rs", NOW)
    pods.refuse("c", "rs", NOW)
    assert sorted(filter(None, [pods.holds("a", NOW), pods.holds("b", NOW)])) == [True]


def test_each_attempt_comes_later_than_the_last_one_and_at_least_every_fifteen_minutes() -> None:
    pods, now, waits = Pods(), NOW, []
    for number in range(12):
        pods.refuse(f"p{number}", "rs", now)
        pods.put(f"p{number + 1}", "rs", now)
        since = now
        while pods.holds(f"p{number + 1}", now):
            wake = pods.backoffs.wake
            assert wake is not None
            now = wake
        waits.append(now - since)
    assert waits[:5] == [0, 10, 20, 40, 80]
    assert waits == sorted(waits)
    assert waits[-1] == LONGEST


def test_pods_that_were_started_together_count_as_one_attempt() -> None:
    pods = Pods()
    for number in range(20):
        pods.put(f"p{number}", "rs", NOW, gates=(), given="n1")
    for number in range(20):
        pods.refuse(f"p{number}", "rs", NOW)
    pods.put("next", "rs", NOW)
    assert pods.holds("next", NOW) is False


def test_nobody_is_evicted_for_it_until_fifteen_minutes_after_the_last_refusal() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW)
    pods.put("b", "rs", NOW)
    assert not pods.evicts("b", NOW + LONGEST - 1)
    assert pods.evicts("b", NOW + LONGEST)


def test_once_a_pod_is_accepted_the_others_are_free() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW)
    for name in ("b", "c"):
        pods.put(name, "rs", NOW)
    assert pods.holds("c", NOW)
    pods.backoffs.accept(pods.put("b", "rs", NOW, gates=(), node="n1"), NOW)
    assert pods.holds("c", NOW) is None
    assert len(pods.backoffs) == 0


def test_another_template_of_the_owner_is_not_held_back() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW, volumes=[{"name": "data", "emptyDir": {}}])
    pods.put("b", "rs", NOW)
    assert pods.holds("b", NOW) is None


def test_a_pod_is_of_the_template_that_it_was_of_before_it_was_pinned() -> None:
    pods = Pods()
    terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["n1"]}]}]
    pinned = {"nodeAffinity": {"requiredDuringScheduling": {"nodeSelectorTerms": terms}}}
    pods.refuse("a", "rs", NOW, affinity=pinned)
    pods.put("b", "rs", NOW)
    assert pods.holds("b", NOW) is False


def test_the_volume_of_the_token_has_another_name_in_each_pod_and_says_nothing() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW, volumes=[{"name": "kube-api-access-abcde", "projected": {}}])
    pods.put("b", "rs", NOW, volumes=[{"name": "kube-api-access-fghij", "projected": {}}])
    assert pods.holds("b", NOW) is False


def test_new_owners_of_a_namespace_wait_once_several_were_refused() -> None:
    pods = Pods()
    for number in range(4):
        pods.put(f"new{number}", f"rs{number}", NOW)
        assert pods.holds(f"new{number}", NOW) is None
        pods.refuse(f"new{number}", f"rs{number}", NOW)
    pods.put("late", "another", NOW)
    assert pods.holds("late", NOW)
    assert not pods.evicts("late", NOW)
    assert pods.holds("late", NOW + 10) is False


def test_owners_with_running_pods_do_not_wait_for_those_that_were_refused() -> None:
    pods = Pods()
    pods.put("running", "good", NOW, gates=(), node="n1")
    for number in range(6):
        pods.refuse(f"p{number}", f"rs{number}", NOW)
    pods.put("more", "good", NOW)
    assert pods.holds("more", NOW) is None


def test_another_namespace_of_the_queue_does_not_notice() -> None:
    pods = Pods()
    for number in range(6):
        pods.refuse(f"p{number}", f"rs{number}", NOW)
    body = pod_body("other", owner=replica_set("theirs"))
    body["metadata"]["namespace"] = "elsewhere"
    pods.backoffs.put_pod(read_pod(body), "elsewhere/pod/other", NOW)
    assert pods.backoffs.refusal_of("elsewhere/pod/other", NOW) is None


def test_it_is_tried_again_at_once_when_an_object_that_was_named_has_changed() -> None:
    pods = Pods()
    for number in range(4):
        pods.refuse(f"p{number}", "rs", NOW + number * 100)
        pods.put(f"p{number + 1}", "rs", NOW + number * 100)
    assert pods.holds("p4", NOW + 301)
    pods.backoffs.object_changed("t", "data", NOW + 301)
    assert pods.holds("p4", NOW + 301) is False
    assert pods.evicts("p4", NOW + 301)


@pytest.mark.parametrize(
    ("namespace", "name", "ends"),
    [("t", "data", True), ("", "data", True), ("t", "dat", False), ("other", "data", False)],
)
def test_only_an_object_that_was_named_and_that_the_pods_can_use_ends_a_back_off(
    namespace: str, name: str, ends: bool
) -> None:
    pods = Pods()
    for number in range(4):
        pods.refuse(f"p{number}", "rs", NOW + number * 100)
        pods.put(f"p{number + 1}", "rs", NOW + number * 100)
    pods.backoffs.object_changed(namespace, name, NOW + 301)
    assert pods.holds("p4", NOW + 301) is not ends


def test_a_tenant_who_changes_an_object_all_the_time_has_few_attempts_more() -> None:
    pods, attempts, number = Pods(), 0, 0
    pods.put("p0", "rs", NOW)
    for second in range(3600):
        now = NOW + second
        pods.backoffs.object_changed("t", "data", now)
        if not pods.holds(f"p{number}", now):
            attempts += 1
            pods.refuse(f"p{number}", "rs", now)
            number += 1
            pods.put(f"p{number}", "rs", now)
    assert attempts < 20


def test_nor_does_he_get_more_when_nothing_waits_while_he_changes_it() -> None:
    pods, evicting = Pods(), 0
    for number in range(60):
        now = NOW + 60 * number
        pods.refuse(f"p{number}", "rs", now)
        pods.backoffs.object_changed("t", "data", now + 1)
        pods.backoffs.take_due(now + 1)
        pods.put(f"p{number + 1}", "rs", now + 2)
        evicting += pods.evicts(f"p{number + 1}", now + 2)
    assert evicting <= 10


def test_the_names_of_a_line_that_is_forgotten_are_forgotten() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW)
    pods.backoffs.take_due(NOW + LONGEST)
    pods.backoffs.object_changed("t", "data", NOW + LONGEST)
    assert pods.backoffs.wake is None


def test_owners_that_are_gone_are_forgotten_after_their_back_off() -> None:
    pods = Pods()
    for number in range(50):
        pods.refuse(f"p{number}", f"rs{number}", NOW)
    pods.backoffs.take_due(NOW + LONGEST)
    assert len(pods.backoffs) == 0
    assert pods.backoffs.wake is None


def test_a_bounded_number_of_owners_is_remembered() -> None:
    pods = Pods()
    for number in range(1200):
        pods.refuse(f"p{number}", f"rs{number}", NOW)
    assert len(pods.backoffs) <= 1001


def test_all_pods_that_are_there_are_held_back_however_many_owners_they_have() -> None:
    pods = Pods()
    for number in range(4):
        pods.refuse(f"refused{number}", f"of{number}", NOW)
    names = [f"p{number}" for number in range(1_100)]
    for name in names:
        pods.put(name, f"rs-{name}", NOW)
    assert all(pods.holds(name, NOW) for name in names)
    for name in names:
        pods.backoffs.remove_pod(f"t/{name}")
    assert len(pods.backoffs) <= 1_001


def test_the_pods_of_an_owner_avoid_the_nodes_that_refused_one_for_a_while() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW)
    pods.backoffs.avoid(read_pod(pod_body("a", owner=replica_set("rs"))), "n1", NOW + 60)
    pods.put("b", "rs", NOW)
    assert list(pods.backoffs.avoided_by("t/b")) == ["n1"]
    pods.backoffs.take_due(NOW + 60)
    assert list(pods.backoffs.avoided_by("t/b")) == []


def test_a_claim_that_is_there_now_ends_the_back_off_of_the_pods_that_lacked_it() -> None:
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_queue("q", declared_queue())
    pod = read_pod(pod_body("a", owner=replica_set("rs"), gates=(), given="n1", verdict=WORDS))
    mirror.put_pod(pod)
    mirror.put_pod(read_pod(pod_body("b", owner=replica_set("rs"))))
    mirror.refresh(NOW)
    group = "t/pod/b"
    mirror.refuse(pod, "t/pod/a", None)
    mirror.refresh(NOW + 1)
    before = mirror.state.occupancy.groups[group].refusal
    mirror.put_storage("elsewhere/data", VolumeClaim(VolumeClaimState.UNBOUND))
    mirror.refresh(NOW + 2)
    elsewhere = mirror.state.occupancy.groups[group].refusal
    mirror.put_storage("t/data", VolumeClaim(VolumeClaimState.UNBOUND))
    mirror.refresh(NOW + 3)
    after = mirror.state.occupancy.groups[group].refusal
    assert [each and each.evicts for each in (before, elsewhere, after)] == [False, False, True]


def test_an_object_of_the_same_name_in_another_namespace_changes_nothing() -> None:
    pods = Pods()
    for number in range(2):
        pods.refuse(f"a{number}", "rs", NOW)
        pods.put(f"a{number + 1}", "rs", NOW)
    assert pods.holds("a2", NOW)
    pods.backoffs.object_changed("u", "data", NOW)
    assert pods.holds("a2", NOW)


def test_a_pod_that_comes_to_another_group_leaves_the_first_one() -> None:
    pods = Pods()
    pods.refuse("a", "rs", NOW)
    pod = pods.put("b", "rs", NOW)
    pods.backoffs.put_pod(pod, "t/other", NOW)
    assert pods.backoffs.refusal_of(group_of(pod), NOW) is None
    assert pods.backoffs.refusal_of("t/other", NOW) is not None


def test_a_bounded_number_of_accepted_owners_is_remembered() -> None:
    """The one that was accepted first waits like a new one, once others were refused."""
    pods = Pods()
    pods.refuse("first", "rs", NOW)
    for number in range(1001):
        pods.backoffs.accept(
            read_pod(pod_body(f"p{number}", owner=replica_set(f"rs{number}"))), NOW
        )
    for number in range(4):
        pods.refuse(f"bad{number}", f"bad{number}", NOW)
    pods.put("forgotten", "rs0", NOW)
    pods.put("known", "rs1", NOW)
    assert pods.holds("forgotten", NOW)
    assert pods.holds("known", NOW) is None


def test_the_pod_that_is_refused_is_held_back_although_the_roster_has_it_no_more() -> None:
    pods = Pods()
    pod = pods.put("a", "rs", NOW, gates=(), given="n1", verdict=WORDS)
    pods.backoffs.refuse(pod, group_of(pod), NOW, (), WORDS)
    assert not pods.evicts("a", NOW)


def test_one_owner_that_is_refused_again_and_again_does_not_keep_new_ones_waiting() -> None:
    pods = Pods()
    for number in range(6):
        pods.refuse(f"p{number}", "rs", NOW + number * LONGEST)
        pods.put(f"p{number + 1}", "rs", NOW + number * LONGEST)
    pods.put("new", "another", NOW + 6 * LONGEST)
    assert pods.holds("new", NOW + 6 * LONGEST) is None
