"""What follows from a plan for the cluster as it is watched."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.resource import (
    Allocation,
    DeviceClass,
    ObjectMeta,
    ResourceClaim,
    decode,
    encode,
)
from controller.act.commit import MOST_CONSUMERS, Acts, ClaimStart, ClaimUse, acts
from controller.act.patch import reservation
from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Action, Eviction, Nomination, Plan, Start
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.names import PREEMPTIBLE_ANNOTATION
from controller.observe.mirror import Assumed, Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of


class Cluster:
    """What a mirror is shown; plans are written by hand."""

    def __init__(self) -> None:
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        self.mirror.put_devices(DeviceClass(ObjectMeta(name="gpu")))
        self.mirror.put_queue("q", declared_queue())
        for name in ("n1", "n2"):
            self.mirror.put_node(Scene().node(name).nodes[name])
            self.mirror.put_devices(gpu_slice(name, 4))

    def claim(self, name: str, allocation: Allocation | None = None, *pods: str) -> "Cluster":
        body = claim_body(name, allocation=allocation, reserved_for=pods)
        self.mirror.put_claim(decode(ResourceClaim, body))
        return self

    def pod(self, name: str, *claims: str, held: bool = True, **fields: Any) -> "Cluster":
        gates = ("scheduling.carina.dev/queue",) if held else ()
        node = None if held else "n1"
        body = pod_body(name, claims=claims, gates=gates, node=node, **fields)
        self.mirror.put_pod(read_pod(body))
        return self

    def standalone(self, name: str, allocation: Allocation) -> "Cluster":
        body = claim_body(name, allocation=allocation, labels={QUEUE_LABEL: "q"})
        claim = decode(ResourceClaim, body)
        body["status"]["reservedFor"] = [encode(reservation(claim))]
        self.mirror.put_claim(decode(ResourceClaim, body))
        return self

    def acts(
        self,
        *starts: Start,
        nominations: tuple[Nomination, ...] = (),
        evictions: tuple[Eviction, ...] = (),
    ) -> Acts:
        self.mirror.refresh(NOW)
        plan = replace(
            _empty(self.mirror), starts=starts, nominations=nominations, evictions=evictions
        )
        return acts(plan, self.mirror)


def _empty(mirror: Mirror) -> Plan:
    return replace(Engine(mirror.state).decide(), starts=(), nominations=(), evictions=())


def start(pod: str, node: str = "n1", **allocations: Allocation) -> Start:
    given = tuple((f"t/{claim}", allocation) for claim, allocation in allocations.items())
    return Start(f"t/{pod}", node, given)


def written(done: Acts) -> dict[str, tuple[list[str], list[str]]]:
    """The claims and the pods of each commit, by its group."""
    return {
        commit.group: (
            [one.claim.metadata.name for one in commit.claims],
            [one.pod.name for one in commit.pods],
        )
        for commit in done.commits
    }


def reserved(done: Acts) -> dict[str, dict[str, list[str]]]:
    """For whom the claims of each commit are reserved, by its group and by claim."""
    return {
        commit.group: {
            one.claim.metadata.name: [consumer.name for consumer in one.consumers]
            for one in commit.claims
        }
        for commit in done.commits
    }


def released(done: Acts) -> list[str]:
    return [one.claim.metadata.name for one in done.releases]


def test_the_pods_of_a_group_start_with_all_of_their_claims() -> None:
    cluster = Cluster().claim("c").pod("p", "c")
    done = cluster.acts(start("p", c=gpus_of("n1", 0)))
    assert written(done) == {"t/pod/p": (["c"], ["p"])}
    assert [one.name for one in done.commits[0].claims[0].consumers] == ["p"]


@pytest.mark.parametrize("says", ["true", "false"])
def test_pods_start_as_their_group_was_when_that_was_decided(says: str) -> None:
    cluster = Cluster().claim("c").pod("p", "c", annotations={PREEMPTIBLE_ANNOTATION: says})
    (commit,) = cluster.acts(start("p", c=gpus_of("n1", 0))).commits
    (pod,) = commit.pods
    found = pod.group.preemptible, commit.assumed["t/p"].preemptible
    assert found == (says == "true",) * 2


def test_a_pod_without_its_gate_gets_its_claims_only() -> None:
    cluster = Cluster().claim("c").pod("p", "c", held=False)
    assert written(cluster.acts(start("p", c=gpus_of("n1", 0)))) == {"t/pod/p": (["c"], [])}


def test_a_pod_is_evicted_if_it_is_still_there() -> None:
    cluster = Cluster().pod("a", held=False)
    gone, there = (Eviction(f"t/{name}", "n1", Action.RECLAIM, "t/g", 30) for name in ("gone", "a"))
    assert cluster.acts(evictions=(gone, there)).evictions == ((there, cluster.mirror.pods["t/a"]),)


def test_a_tentative_allocation_that_is_wanted_is_not_written_again() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c")
    done = cluster.acts(start("p", c=gpus_of("n1", 0)))
    assert written(done) == {"t/pod/p": ([], ["p"])}
    assert released(done) == []


def test_a_tentative_allocation_that_is_nominated_stays() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c")
    nomination = Nomination("t/p", "n1", (("t/c", gpus_of("n1", 0)),))
    assert released(cluster.acts(nominations=(nomination,))) == []


def test_a_tentative_allocation_that_nobody_wants_is_taken_back() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c")
    (release,) = cluster.acts().releases
    assert (release.claim.metadata.name, [pod.name for pod in release.pods]) == ("c", ["p"])


def test_an_allocation_in_effect_is_never_taken_back() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c", held=False)
    assert released(cluster.acts()) == []


def test_a_claim_gives_its_old_devices_back_before_it_gets_others() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c")
    done = cluster.acts(start("p", "n2", c=gpus_of("n2", 0)))
    assert (written(done), released(done)) == ({}, ["c"])


def test_nobody_starts_on_devices_that_are_being_taken_back() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c")
    cluster.claim("d").pod("o", "d").claim("e").pod("r", "e")
    done = cluster.acts(start("o", d=gpus_of("n1", 0)), start("r", "n2", e=gpus_of("n2", 0)))
    assert (written(done), released(done)) == ({"t/pod/r": (["e"], ["r"])}, ["c"])


def test_nobody_starts_on_devices_that_may_share_with_those_that_are_being_taken_back() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c").claim("d").pod("o", "d")
    done = cluster.acts(start("o", d=gpus_of("n1", 1)))
    assert (written(done), released(done)) == ({}, ["c"])


def test_a_start_waits_for_a_claim_that_is_taken_back_from_another_group() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c").pod("o", "c")
    done = cluster.acts(start("o"))
    assert (written(done), released(done)) == ({}, ["c"])


def test_devices_on_which_a_start_rests_that_is_being_written_are_not_taken_back() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c").pod("o", "c")
    cluster.mirror.assume("t/o", Assumed("n1"))
    assert released(cluster.acts()) == []
    cluster.mirror.forget({"t/o": cluster.mirror.assumed["t/o"]})
    assert released(cluster.acts()) == ["c"]


def test_a_start_waits_for_a_claim_that_another_group_brings() -> None:
    cluster = Cluster().claim("c").pod("p", "c").pod("o", "c")
    done = cluster.acts(start("p", c=gpus_of("n1", 0)), start("o"))
    assert written(done) == {"t/pod/p": (["c"], ["p"])}
    cluster.mirror.assume("t/p", done.commits[0].assumed["t/p"])
    assert written(cluster.acts(start("o"))) == {}, "it is being written"


def test_a_pod_reserves_a_claim_that_has_its_devices_already_before_it_starts() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "o").pod("o", "c", held=False).pod("p", "c")
    done = cluster.acts(start("p"))
    assert reserved(done) == {"t/pod/p": {"c": ["p"]}}
    assert isinstance(done.commits[0].claims[0], ClaimUse)


def test_a_pod_that_names_a_claim_twice_reserves_it_once() -> None:
    cluster = Cluster().claim("c").pod("p", "c", "c")
    assert reserved(cluster.acts(start("p", c=gpus_of("n1", 0)))) == {"t/pod/p": {"c": ["p"]}}


def test_a_claim_that_is_reserved_for_a_pod_is_not_written_again() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "o", "p").pod("o", "c", held=False)
    assert reserved(cluster.pod("p", "c").acts(start("p"))) == {"t/pod/p": {}}


def test_a_tentative_allocation_that_is_wanted_is_reserved_for_pods_that_came_later() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "p").pod("p", "c").pod("o", "c")
    done = cluster.acts(start("p", c=gpus_of("n1", 0)))
    assert reserved(done) == {"t/pod/p": {}}
    done = cluster.acts(start("o", c=gpus_of("n1", 0)))
    assert reserved(done) == {"t/pod/o": {"c": ["o"]}}


def test_a_standalone_claim_is_reserved_for_its_pods_too_since_its_own_reservation_may_end() -> (
    None
):
    cluster = Cluster().standalone("c", gpus_of("n1", 0)).pod("p", "c")
    assert reserved(cluster.acts(start("p"))) == {"t/pod/p": {"c": ["p"]}}


def test_one_write_reserves_a_claim_for_all_groups_that_start_with_it() -> None:
    cluster = Cluster().claim("c", gpus_of("n1", 0), "o").pod("o", "c", held=False)
    cluster.pod("p", "c").pod("r", "c")
    done = cluster.acts(start("p"), start("r"))
    assert reserved(done) == {"t/pod/p": {"c": ["p", "r"]}}, "the other waits for this write"
    cluster.mirror.assume("t/p", done.commits[0].assumed["t/p"])
    assert reserved(cluster.acts(start("r"))) == {}, "it is being written"


def test_a_claim_is_reserved_for_no_more_pods_than_the_api_allows() -> None:
    names = [f"p{index}" for index in range(MOST_CONSUMERS + 1)]
    cluster = Cluster().claim("c")
    for name in names:
        cluster.pod(name, "c")
    (commit,) = cluster.acts(*(start(name, c=gpus_of("n1", 0)) for name in names[:1])).commits
    assert isinstance(commit.claims[0], ClaimStart)
    cluster = Cluster().claim("c", gpus_of("n1", 0), *names[:-1])
    cluster.pod(names[0], "c", held=False).pod(names[-1], "c")
    assert reserved(cluster.acts(start(names[-1]))) == {f"t/pod/{names[-1]}": {}}


def test_a_gang_that_shares_a_claim_may_be_larger_than_the_reservations_of_a_claim() -> None:
    names = [f"p{index}" for index in range(MOST_CONSUMERS + 1)]
    cluster = Cluster().claim("c")
    for name in names:
        cluster.pod(name, "c", group="g")
    done = cluster.acts(start(names[0], c=gpus_of("n1", 0)), *map(start, names[1:]))
    assert len(done.commits[0].pods) == len(names)
    assert reserved(done)["t/g"]["c"] == names[:-1]
