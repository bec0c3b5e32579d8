"""kube-scheduler has the last word about nodes, and schedules pods without a queue as ever."""

import json
from collections.abc import Callable, Iterator

import pytest

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from controller.names import DELETE_PROTECTION as FINALIZER
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODES = [f"beside-{index}" for index in range(3)]
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """Three nodes of two GPUs."""
    site.add_nodes(*_NODES, gpus=2)
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def stock_pod(team: Team, name: str, gpus: int) -> None:
    """Creates a pod without a queue."""
    template = team.template(gpus, labelled=False)
    body = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": team.namespace},
        "spec": {
            **team.pod_spec(0),
            "resourceClaims": [{"name": "gpus", "resourceClaimTemplateName": template}],
        },
    }
    body["spec"]["containers"][0]["resources"]["claims"] = [{"name": "gpus"}]  # type: ignore[index]
    team.client.create(PODS, body)


def claim_a_volume_on(team: Team, node: str) -> str:
    """A PersistentVolumeClaim whose volume is on one node."""
    name = "data"
    kubectl = team.site.cluster.kubectl
    capacity = {"storage": "1Gi"}
    at = {"key": "kubernetes.io/hostname", "operator": "In", "values": [node]}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{team.namespace}-{name}"},
        "spec": {
            "capacity": capacity,
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "persistentVolumeReclaimPolicy": "Delete",
            "claimRef": {"namespace": team.namespace, "name": name},
            "local": {"path": "/data"},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [at]}]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": name, "namespace": team.namespace},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "volumeName": f"{team.namespace}-{name}",
            "resources": {"requests": capacity},
        },
    }
    kubectl("create", "-f", "-", stdin=json.dumps(volume))
    kubectl("create", "-f", "-", stdin=json.dumps(claim))
    return name


def test_pods_without_a_queue_are_scheduled_as_ever_and_their_devices_are_seen(
    new_team: NewTeam,
) -> None:
    team = new_team()
    stock_pod(team, "stock", gpus=2)
    [taken] = team.await_bound(1, "stock").values()
    team.gang("queued", pods=2, gpus=2)
    assert taken not in team.await_bound(2, "queued").values()


def test_pod_of_a_job_that_kube_scheduler_refuses_goes_to_another_node(new_team: NewTeam) -> None:
    team = new_team()
    allowed = _NODES[-1]
    volume = {
        "name": "data",
        "persistentVolumeClaim": {"claimName": claim_a_volume_on(team, allowed)},
    }
    team.job("needs-volume", pods=1, gpus=2, volumes=[volume])
    eventually(lambda: list(team.bound().values()) == [allowed], within=4 * PLACED_WITHIN)


def test_bare_pod_whose_devices_kube_scheduler_takes_back_goes_to_another_node(
    new_team: NewTeam,
) -> None:
    team = new_team()
    allowed = _NODES[-1]
    volume = {
        "name": "data",
        "persistentVolumeClaim": {"claimName": claim_a_volume_on(team, allowed)},
    }
    team.pod("needs-volume", gpus=2, volumes=[volume])
    eventually(lambda: list(team.bound().values()) == [allowed], within=4 * PLACED_WITHIN)


def test_others_do_not_starve_behind_a_pod_that_is_refused_again_and_again(
    new_team: NewTeam, site: Site
) -> None:
    team = new_team()
    missing = {"name": "data", "persistentVolumeClaim": {"claimName": "does-not-exist"}}
    team.job("hopeless", pods=3, gpus=2, volumes=[missing])
    team.job("modest", pods=1, gpus=1)
    eventually(lambda: len(team.bound("modest")) == 1, within=4 * PLACED_WITHIN)


def allocate_again(team: Team) -> None:
    """Somebody else allocates what the only claim has, to a claim without a queue, and later."""
    [claim] = team.claims().values()
    allocation = dict(claim["status"]["allocation"], allocationTimestamp="2040-01-01T00:00:00Z")
    exactly = {"deviceClassName": GPU_CLASS, "count": 2}
    other = team.client.create(
        RESOURCE_CLAIMS,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": "other", "namespace": team.namespace, "finalizers": [FINALIZER]},
            "spec": {"devices": {"requests": [{"name": "gpus", "exactly": exactly}]}},
        },
    )
    team.client.replace_status(RESOURCE_CLAIMS, {**other, "status": {"allocation": allocation}})


def test_device_that_two_claims_have_stays_with_the_claim_without_a_queue(
    new_team: NewTeam,
) -> None:
    team = new_team()
    team.job("queued", pods=1, gpus=2)
    [(pod, node)] = team.await_bound(1).items()
    allocate_again(team)
    eventually(lambda: pod not in team.pods(), within=PLACED_WITHIN)
    [(_, elsewhere)] = team.await_bound(1, within=3 * PLACED_WITHIN).items()
    assert elsewhere != node
    events = team.site.cluster.kubectl("get", "events", "--namespace", team.namespace)
    assert "DoubleAllocation" in events


def test_pod_that_nobody_replaces_is_told_to_leave_a_device_that_two_claims_have(
    new_team: NewTeam,
) -> None:
    team = new_team()
    team.pod("bare", gpus=2)
    team.await_bound(1)
    allocate_again(team)
    kubectl = team.site.cluster.kubectl
    asked = ("get", "events", "--namespace", team.namespace)
    of_pod = ("--field-selector", "involvedObject.kind=Pod,reason=DoubleAllocation")
    eventually(
        lambda: "delete it, and create it again" in kubectl(*asked, *of_pod), within=PLACED_WITHIN
    )
    assert "bare" in team.pods()
