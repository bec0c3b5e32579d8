"""Nothing is sent to kube-scheduler, or written, where that could cost others their devices."""

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import pytest

from carina_dra.kube.body import Body
from carina_dra.resource import Allocation, DeviceClass, ObjectMeta, ResourceClaim, decode
from controller.act.commit import Commit, acts
from controller.engine.decide.cycle import Engine
from controller.engine.model.plan import Start
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Assumed, Mirror
from controller.observe.planned_claims import CHOICE_SECONDS
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpu_slice, gpus_of

NAME = "nvidia.com/gpu"
OTHER = "example.com/other"


class Cluster:
    """A node with GPUs, which two classes select, each with an extended resource."""

    def __init__(self) -> None:
        self.now = NOW
        self.mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
        for name, resource in (("gpu", NAME), ("other", OTHER)):
            made = DeviceClass(ObjectMeta(name=name))
            spec = replace(made.spec, extended_resource_name=resource)
            self.mirror.put_devices(replace(made, spec=spec))
        self.mirror.put_queue("q", declared_queue())
        self.mirror.put_node(Scene().node("n1").nodes["n1"])
        self.mirror.put_devices(gpu_slice("n1", 4))

    def asks(self, name: str, resource: str = NAME, **fields: Any) -> None:
        self.mirror.put_pod(read_pod(self.body(name, resource, **fields)))

    def body(self, name: str, resource: str, **fields: Any) -> Body:
        resources = {"requests": {resource: "1"}}
        return pod_body(name, containers=[{"name": "main", "resources": resources}], **fields)

    def claims(self, name: str) -> None:
        self.mirror.put_claim(decode(ResourceClaim, claim_body(f"c-{name}")))
        self.mirror.put_pod(read_pod(pod_body(name, claims=[f"c-{name}"])))

    def start(self, *starts: Start) -> list[Commit]:
        """What is committed of the starts that are planned."""
        self.mirror.refresh(self.now)
        plan = Engine(self.mirror.state).decide()
        return list(acts(replace(plan, starts=starts, nominations=()), self.mirror).commits)

    def send(self, name: str, resource: str = NAME, *, gpu: int = 0, **fields: Any) -> None:
        """A pod has lost its gate, and kube-scheduler is about to choose its devices."""
        assumed = Assumed("n1", {}, planned={planned(name, resource): gpus_of("n1", gpu)})
        self.asks(name, resource, **fields)
        self.mirror.refresh(self.now)
        self.mirror.assume(f"t/{name}", assumed)
        self.asks(name, resource, gates=(), given="n1", version=2, **fields)
        self.mirror.forget({f"t/{name}": assumed})


def planned(name: str, resource: str = NAME) -> str:
    return f"t/{name}/extended-resource/{resource}"


def asking(name: str, resource: str = NAME, gpu: int = 1) -> Start:
    return Start(f"t/{name}", "n1", ((planned(name, resource), gpus_of("n1", gpu)),))


def claiming(name: str, gpu: int = 1) -> Start:
    return Start(f"t/{name}", "n1", ((f"t/c-{name}", gpus_of("n1", gpu)),))


def pods(commits: Iterable[Commit]) -> list[str]:
    return [one.pod.name for commit in commits for one in commit.pods]


def test_claim_that_kube_scheduler_makes_is_not_written() -> None:
    cluster = Cluster()
    cluster.asks("p")
    [commit] = cluster.start(asking("p"))
    assert not commit.claims
    assert commit.assumed["t/p"] == Assumed("n1", {}, planned={planned("p"): gpus_of("n1", 1)})


@pytest.mark.parametrize("owner", [None, JOB])
def test_pod_is_pinned_whether_it_is_replaced_or_not(owner: Body | None) -> None:
    cluster = Cluster()
    cluster.asks("p", owner=owner)
    [commit] = cluster.start(asking("p"))
    assert [one.is_chosen_for for one in commit.pods] == [True]


def test_pod_that_a_device_plugin_serves_is_pinned_too() -> None:
    cluster = Cluster()
    cluster.mirror.put_node(Scene().node("n2", extended={NAME: 1}).nodes["n2"])
    cluster.asks("p")
    [commit] = cluster.start(Start("t/p", "n2", ()))
    assert [one.is_chosen_for for one in commit.pods] == [True]
    assert not commit.assumed["t/p"].planned


def test_equal_requests_are_sent_together() -> None:
    cluster = Cluster()
    cluster.send("first")
    for name in ("second", "third"):
        cluster.asks(name)
    commits = cluster.start(asking("second", gpu=1), asking("third", gpu=2))
    assert pods(commits) == ["second", "third"]


def test_unlike_requests_wait_for_the_choice_of_kube_scheduler() -> None:
    cluster = Cluster()
    cluster.send("first")
    cluster.asks("second", OTHER)
    assert not cluster.start(asking("second", OTHER))


def test_unlike_requests_of_one_plan_are_not_sent_together() -> None:
    cluster = Cluster()
    cluster.asks("first")
    cluster.asks("second", OTHER)
    assert pods(cluster.start(asking("first", gpu=0), asking("second", OTHER))) == ["first"]


def test_nothing_is_written_where_kube_scheduler_is_choosing() -> None:
    cluster = Cluster()
    cluster.send("first")
    cluster.claims("second")
    assert not cluster.start(claiming("second"))


def test_nothing_is_sent_where_something_is_being_written() -> None:
    cluster = Cluster()
    cluster.claims("first")
    cluster.asks("second")
    assert pods(cluster.start(claiming("first", 0), asking("second"))) == ["first"]
    cluster.mirror.refresh(NOW)
    cluster.mirror.assume("t/first", Assumed("n1", {"t/c-first": gpus_of("n1", 0)}))
    assert not cluster.start(asking("second"))


def test_allocation_that_is_stored_already_waits_for_no_choice() -> None:
    """kube-scheduler sees it."""
    cluster = Cluster()
    cluster.send("first")
    stored = claim_body("c-second", allocation=gpus_of("n1", 1))
    cluster.mirror.put_claim(decode(ResourceClaim, stored))
    cluster.mirror.put_pod(read_pod(pod_body("second", claims=["c-second"])))
    assert pods(cluster.start(claiming("second"))) == ["second"]


def test_pod_does_not_wait_for_the_choice_for_another_one_of_its_group() -> None:
    cluster = Cluster()
    cluster.send("first", owner=JOB)
    cluster.asks("second", OTHER, owner=JOB)
    assert pods(cluster.start(asking("second", OTHER))) == ["second"]


def test_choice_that_has_been_made_is_waited_for_no_longer() -> None:
    cluster = Cluster()
    cluster.send("first")
    made = claim_body(
        "made",
        allocation=gpus_of("n1", 0),
        reserved_for=["first"],
        ownerReferences=[
            {"apiVersion": "v1", "kind": "Pod", "name": "first", "uid": "uid-first"}
            | {"controller": True}
        ],
    )
    cluster.mirror.put_claim(decode(ResourceClaim, made))
    body = cluster.body("first", NAME, gates=(), given="n1", version=3)
    body["status"]["extendedResourceClaimStatus"] = {"resourceClaimName": "made"}
    cluster.mirror.put_pod(read_pod(body))
    cluster.claims("second")
    assert pods(cluster.start(claiming("second"))) == ["second"]


def test_choice_that_does_not_come_is_not_waited_for_forever() -> None:
    cluster = Cluster()
    cluster.send("first")
    cluster.claims("second")
    cluster.now += CHOICE_SECONDS
    assert pods(cluster.start(claiming("second"))) == ["second"]


class TestWhoLetsOthersWaitInVain:
    """A choice for `first` does not come, since no scheduler looks at it."""

    def _planned(self, cluster: Cluster) -> list[str]:
        cluster.mirror.refresh(cluster.now)
        plan = Engine(cluster.mirror.state).decide()
        return [start.pod for start in plan.starts]

    def test_nothing_more_is_chosen_for_its_namespace_for_many_times_as_long(self) -> None:
        cluster = Cluster()
        cluster.send("first")
        cluster.asks("second")
        assert self._planned(cluster) == ["t/second"]
        cluster.now += CHOICE_SECONDS
        assert self._planned(cluster) == []
        cluster.asks("third")
        cluster.claims("other")
        cluster.now += 19 * CHOICE_SECONDS
        assert self._planned(cluster) == ["t/other"]
        cluster.now += CHOICE_SECONDS
        assert set(self._planned(cluster)) == {"t/second", "t/third", "t/other"}

    def test_nor_if_it_is_deleted_before_that_is_known(self) -> None:
        cluster = Cluster()
        cluster.send("first")
        cluster.now += 10
        cluster.mirror.refresh(cluster.now)
        cluster.mirror.remove_pod(cluster.mirror.pods["t/first"])
        cluster.asks("second")
        assert self._planned(cluster) == []
        cluster.now += 20 * 10
        assert self._planned(cluster) == ["t/second"]

    def test_a_late_choice_ends_that(self) -> None:
        cluster = Cluster()
        cluster.send("first")
        cluster.asks("second")
        assert self._planned(cluster) == ["t/second"]
        cluster.now += CHOICE_SECONDS
        assert self._planned(cluster) == []
        cluster.asks("first", gates=(), given="n1", version=3, node="n1")
        assert self._planned(cluster) == ["t/second"]

    def test_who_is_evicted_meanwhile_is_not_to_blame(self) -> None:
        cluster = Cluster()
        cluster.send("first")
        cluster.now += 10
        cluster.mirror.refresh(cluster.now)
        cluster.mirror.assume_evicted("t/first")
        cluster.mirror.remove_pod(cluster.mirror.pods["t/first"])
        cluster.asks("second")
        assert self._planned(cluster) == ["t/second"]


def test_gang_of_claims_and_extended_resources_starts_together() -> None:
    cluster = Cluster()
    cluster.mirror.put_claim(decode(ResourceClaim, claim_body("c-p")))
    resources = {"requests": {NAME: "1"}}
    container = {"name": "main", "resources": resources}
    cluster.mirror.put_pod(read_pod(pod_body("p", claims=["c-p"], containers=[container])))
    given: tuple[tuple[str, Allocation], ...] = (
        ("t/c-p", gpus_of("n1", 0)),
        (planned("p"), gpus_of("n1", 1)),
    )
    [commit] = cluster.start(Start("t/p", "n1", given))
    assert [one.claim.metadata.name for one in commit.claims] == ["c-p"]
