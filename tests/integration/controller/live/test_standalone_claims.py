"""A claim by itself holds devices for pods that come and go."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import EXPIRES_ANNOTATION, GROUP, QUEUES
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

NewTeam = Callable[..., Team]
_NODES = ["alone-0"]
_QUOTA = [{"deviceClass": GPU_CLASS, "quota": 2}]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """A node of four GPUs."""
    site.add_nodes(*_NODES, gpus=4)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def claim(team: Team, name: str, gpus: int, **annotations: str) -> None:
    """Creates a claim with the label of the team's queue."""
    exactly = {"deviceClassName": GPU_CLASS, "count": gpus}
    team.client.create(
        RESOURCE_CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {
                "name": name,
                "namespace": team.namespace,
                "labels": {QUEUE_LABEL: team.queue},
                "annotations": annotations,
            },
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        },
    )


def status(team: Team, name: str) -> Body:
    found: Body = team.claims().get(name, {}).get("status") or {}
    return found


def await_allocated(team: Team, name: str) -> Any:
    return eventually(lambda: status(team, name).get("allocation"), within=PLACED_WITHIN)


def use(team: Team, pod: str, name: str, *, queue: bool = True) -> None:
    """Creates a pod that uses the claim, of the queue or of none."""
    spec = {**team.pod_spec(0), "resourceClaims": [{"name": "gpus", "resourceClaimName": name}]}
    labels = team.labels() if queue else {}
    metadata = {"name": pod, "namespace": team.namespace, "labels": labels}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
    team.client.create(PODS, body)


def test_claim_gets_devices_now_and_keeps_them_for_two_pods_in_sequence(new_team: NewTeam) -> None:
    team = new_team(resources=_QUOTA)
    claim(team, "held", 2)
    allocation = await_allocated(team, "held")
    [entry] = status(team, "held")["reservedFor"]
    assert (entry["apiGroup"], entry["resource"]) == (GROUP, "reservations")
    for pod in ("first", "second"):
        use(team, pod, "held")
        team.await_bound(1, pod)
        team.delete_pod(pod)
        eventually(lambda: len(status(team, "held")["reservedFor"]) == 1, within=PLACED_WITHIN)
        assert status(team, "held")["allocation"] == allocation


def test_claim_counts_against_its_queue(new_team: NewTeam) -> None:
    team = new_team(resources=_QUOTA)
    claim(team, "first", 2)
    await_allocated(team, "first")
    claim(team, "second", 1)
    eventually(
        lambda: (
            "quota of queue"
            in team.site.cluster.kubectl(
                *("get", "events", "--namespace", team.namespace),
                *("--field-selector", "involvedObject.name=second"),
            )
        ),
        within=PLACED_WITHIN,
    )
    assert "allocation" not in status(team, "second")


def test_devices_of_a_deleted_claim_are_free(new_team: NewTeam) -> None:
    team = new_team(resources=_QUOTA)
    claim(team, "held", 2)
    await_allocated(team, "held")
    team.client.delete(RESOURCE_CLAIMS, "held", namespace=team.namespace)
    eventually(lambda: "held" not in team.claims(), within=PLACED_WITHIN)
    team.gang("next", pods=2, gpus=2)
    team.await_bound(2, "next")


def test_devices_that_kube_scheduler_gave_are_charged_and_not_held(new_team: NewTeam) -> None:
    """The claim asks for more than its queue may have, and a pod without a queue uses it."""

    def allocated() -> Any:
        queue = team.client.get(QUEUES, team.queue)
        return [each["allocated"] for each in queue.get("status", {}).get("resources", ())]

    team = new_team(resources=_QUOTA)
    claim(team, "large", 3)
    use(team, "other", "large", queue=False)
    team.await_bound(1, "other")
    eventually(lambda: allocated() == [3], within=PLACED_WITHIN)
    [entry] = status(team, "large")["reservedFor"]
    assert entry["name"] == "other"
    team.delete_pod("other")
    eventually(lambda: "allocation" not in status(team, "large"), within=PLACED_WITHIN)
    eventually(lambda: allocated() == [0], within=PLACED_WITHIN)


def test_devices_that_a_pod_got_beyond_the_quota_are_not_held(new_team: NewTeam) -> None:
    team = new_team(resources=_QUOTA)
    claim(team, "large", 3)
    use(team, "preemptible", "large")
    team.await_bound(1, "preemptible")
    [entry] = status(team, "large")["reservedFor"]
    assert entry["name"] == "preemptible"
    team.delete_pod("preemptible")
    eventually(lambda: "allocation" not in status(team, "large"), within=PLACED_WITHIN)


def test_claim_holds_its_devices_until_its_time_is_over(new_team: NewTeam) -> None:
    team = new_team(resources=_QUOTA)
    claim(team, "short", 2, **{EXPIRES_ANNOTATION: "5s"})
    await_allocated(team, "short")
    eventually(lambda: "allocation" not in status(team, "short"), within=PLACED_WITHIN)


def test_time_that_cannot_be_read_is_said(new_team: NewTeam) -> None:
    team = new_team(resources=_QUOTA)
    claim(team, "wrong", 1, **{EXPIRES_ANNOTATION: "soon"})
    eventually(
        lambda: (
            EXPIRES_ANNOTATION
            in team.site.cluster.kubectl(
                *("get", "events", "--namespace", team.namespace),
                *("--field-selector", "involvedObject.name=wrong"),
            )
        ),
        within=PLACED_WITHIN,
    )
