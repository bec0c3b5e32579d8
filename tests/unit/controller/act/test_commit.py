"""What follows from a plan for the cluster as it is watched."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.resource import Allocation, DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.commit import Acts, acts
from controller.decide.cycle import Engine
from controller.model.plan import Nomination, Plan, Start
from controller.model.snapshot import Snapshot
from controller.names import PREEMPTIBLE_ANNOTATION
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import claim_body, declared_queue, pod_body
from tests.unit.controller.scene import NOW, Scene, gpu_slice, gpus_of


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

    def acts(self, *starts: Start, nominations: tuple[Nomination, ...] = ()) -> Acts:
        self.mirror.refresh(NOW)
        return acts(
            replace(_empty(self.mirror), starts=starts, nominations=nominations), self.mirror
        )


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


def test_a_start_waits_for_a_claim_that_another_group_brings() -> None:
    cluster = Cluster().claim("c").pod("p", "c").pod("o", "c")
    done = cluster.acts(start("p", c=gpus_of("n1", 0)), start("o"))
    assert written(done) == {"t/pod/p": (["c"], ["p"])}
    cluster.mirror.assume("t/p", done.commits[0].assumed["t/p"])
    assert written(cluster.acts(start("o"))) == {}, "it is being written"
