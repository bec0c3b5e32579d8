"""Groups whose owners and PodGroups change while they run, on a real control plane."""

import json
from collections.abc import Callable, Iterator

import pytest

from controller.names import POD_GROUPS, PREEMPTIBLE_ANNOTATION, STARTED_WITH_ANNOTATION
from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, PLACED_WITHIN, Site, Team

_NODES = [f"changes-{index}" for index in range(2)]
NewTeam = Callable[..., Team]


@pytest.fixture(scope="module", autouse=True)
def nodes(site: Site) -> Iterator[None]:
    """Two nodes of two GPUs."""
    site.add_nodes(*_NODES, gpus=2)
    yield
    site.remove_nodes(*_NODES)


def test_service_that_is_scaled_up_on_a_full_cluster_runs_on(team: Team, site: Site) -> None:
    _stateful_set(team, "service", replicas=2)
    with site.controller("before", staleness_grace_seconds=0):
        before = team.await_bound(2)
        uids = _uids(team, "service")
        _scale(team, "service", replicas=4)
        eventually(lambda: len(team.gated("service")) == 2, within=PLACED_WITHIN)
        _await_cycle(team, "first")
        assert (team.bound("service"), _uids(team, "service") >= uids) == (before, True)
    with site.controller("after", staleness_grace_seconds=0):  # which knows of no scaling
        _await_cycle(team, "second")
        assert (team.bound("service"), _uids(team, "service") >= uids) == (before, True)


def test_pods_note_what_their_group_was_when_they_started(team: Team, site: Site) -> None:
    with site.controller():
        team.gang("gang", pods=2)
        team.await_bound(2)
    for pod in team.pods().values():
        annotations = pod["metadata"]["annotations"]
        assert annotations[PREEMPTIBLE_ANNOTATION] == "true"
        assert annotations[STARTED_WITH_ANNOTATION] == "2"


def test_borrowed_devices_are_given_back_though_the_group_says_later_that_it_must_not_be_evicted(
    new_team: NewTeam, site: Site
) -> None:
    owner, borrower = new_team(resources=_quota(4)), new_team(resources=_quota(0))
    with site.controller():
        borrower.gang("borrows", pods=2, gpus=2)
        borrower.await_bound(2)
        site.client.delete(POD_GROUPS, "borrows", namespace=borrower.namespace)
        borrower.group("borrows", minCount=2, preemptible=False)
        owner.gang("owns", pods=2, gpus=2)
        owner.await_bound(2)


def _quota(gpus: int) -> list[dict[str, object]]:
    return [{"deviceClass": GPU_CLASS, "quota": gpus}]


def _stateful_set(team: Team, name: str, replicas: int) -> None:
    labels = {**team.labels(), "app": name}
    body = {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "namespace": team.namespace},
        "spec": {
            "serviceName": "none",
            "replicas": replicas,
            "podManagementPolicy": "Parallel",
            "selector": {"matchLabels": {"app": name}},
            "template": {"metadata": {"labels": labels}, "spec": team.pod_spec(2)},
        },
    }
    team.site.cluster.kubectl("create", "-f", "-", stdin=json.dumps(body))


def _scale(team: Team, name: str, replicas: int) -> None:
    command = ("scale", "statefulset", name, f"--replicas={replicas}", "-n", team.namespace)
    team.site.cluster.kubectl(*command)


def _uids(team: Team, prefix: str) -> set[str]:
    return {pod["metadata"]["uid"] for name, pod in team.pods().items() if name.startswith(prefix)}


def _await_cycle(team: Team, name: str) -> None:
    """Waits until the controller has decided on all that there was before."""
    team.pod(name, gpus=0)
    team.await_bound(1, name)
