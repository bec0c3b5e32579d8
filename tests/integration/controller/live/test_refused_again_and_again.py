"""What kube-scheduler refuses again and again costs little, and nobody else loses anything."""

import json
import re
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

import pytest

from carina_dra.kube.body import Body
from controller.engine.model.queue import QUEUE_LABEL
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODES: Final = [f"refused-{index}" for index in range(4)]
_CLASS: Final = "nobody-provisions"
_WRITES: Final = re.compile(r"apiserver_request_total\{(.*)\} (\S+)")
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def running(site: Site) -> Iterator[None]:
    """Four nodes of four GPUs, and volumes that wait for somebody to make them."""
    site.add_nodes(*_NODES, gpus=4)
    storage_class = {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {"name": _CLASS},
        "provisioner": "kubernetes.io/no-provisioner",
        "volumeBindingMode": "WaitForFirstConsumer",
    }
    site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(storage_class))
    with site.controller():
        yield
    site.remove_nodes(*_NODES)


def quota(gpus: int) -> list[Body]:
    return [{"deviceClass": GPU_CLASS, "quota": gpus}]


def volume_that_nobody_makes(team: Team) -> list[Body]:
    """A claim that the only volume of its class does not do for, as kube-scheduler alone knows."""
    make_a_volume(team, "unsuitable", "ReadWriteOnce")
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": team.namespace},
        "spec": {
            "accessModes": ["ReadWriteMany"],
            "storageClassName": _CLASS,
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    team.site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(claim))
    return [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]


def make_a_volume(team: Team, name: str, mode: str) -> None:
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": f"{team.namespace}-{name}"},
        "spec": {
            "capacity": {"storage": "1Gi"},
            "accessModes": [mode],
            "storageClassName": _CLASS,
            "persistentVolumeReclaimPolicy": "Delete",
            "nfs": {"server": "none", "path": "/data"},
        },
    }
    team.site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(volume))


def replica_set(team: Team, name: str, replicas: int, **spec: Any) -> None:
    labels = {"app": name, QUEUE_LABEL: team.queue}
    body = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {"name": name, "namespace": team.namespace},
        "spec": {
            "replicas": replicas,
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": team.pod_spec(1, **spec)},
        },
    }
    team.site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def writes(site: Site) -> float:
    """How many writes the API server has had, but for Leases."""
    found = _WRITES.findall(site.cluster.kubectl("get", "--raw", "/metrics"))
    return sum(
        float(number)
        for labels, number in found
        if re.search(r'verb="(POST|PUT|PATCH|DELETE|APPLY)"', labels)
        and 'resource="leases"' not in labels
    )


def events(team: Team) -> str:
    return team.site.cluster.kubectl("get", "events", "--namespace", team.namespace)


def await_refusal(team: Team) -> None:
    """Waits until the controller says in kube-scheduler's words why it waits."""
    words = "didn't find available persistent volumes to bind"
    eventually(
        lambda: any(
            "RefusedByScheduler" in line and words in line for line in events(team).splitlines()
        ),
        within=3 * PLACED_WITHIN,
    )


def test_pods_that_are_refused_cost_less_than_a_write_a_second(
    new_team: NewTeam, site: Site
) -> None:
    team = new_team(resources=quota(16))
    replica_set(team, "hopeless", 16, volumes=volume_that_nobody_makes(team))
    await_refusal(team)
    eventually(lambda: len(team.gated()) >= 15, within=PLACED_WITHIN)
    settled, quiet = writes(site), 0
    deadline = time.monotonic() + 60
    while quiet < 3 and time.monotonic() < deadline:  # the Events of the first refusal end
        time.sleep(1)
        now = writes(site)
        quiet, settled = (quiet + 1 if now - settled < 3 else 0), now
    began = time.monotonic()
    time.sleep(30)  # a rate needs a time
    assert (writes(site) - settled) / (time.monotonic() - began) <= 1


def test_nobody_is_evicted_twice_for_pods_that_are_refused(new_team: NewTeam) -> None:
    borrower, owner = new_team(resources=quota(0)), new_team(resources=quota(16))
    replica_set(borrower, "busy", 16)
    borrower.await_bound(16, within=3 * PLACED_WITHIN)
    replica_set(owner, "hopeless", 4, volumes=volume_that_nobody_makes(owner))
    await_refusal(owner)
    again = borrower.await_bound(16, within=3 * PLACED_WITHIN)
    time.sleep(20)  # the next attempts
    assert borrower.bound() == again


def test_they_start_once_kube_scheduler_accepts_them(new_team: NewTeam) -> None:
    team = new_team()
    replica_set(team, "patient", 3, volumes=volume_that_nobody_makes(team))
    await_refusal(team)
    make_a_volume(team, "suitable", "ReadWriteMany")
    team.await_bound(3, within=6 * PLACED_WITHIN)
