"""A control plane of its own, since a controller decides about a whole cluster."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest

from carina_dra.kube.api_resource import NAMESPACES
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import NotFound
from carina_dra.kube.kubeconfig import from_kubeconfig
from controller.names import QUEUES
from simulation.kubernetes.cluster import Cluster, running_cluster
from simulation.kubernetes.control_plane import Arguments
from tests.eventually import eventually
from tests.integration.controller.live.hollow_kubelet import HollowKubelet
from tests.integration.controller.live.site import Site, Team

HOLLOW_NODES = Arguments(
    api_server=("--disable-admission-plugins=TaintNodesByCondition",),
    # Nodes without a kubelet stay ready.
    controller_manager=("--controllers=*,-node-lifecycle-controller,-taint-eviction-controller",),
)
_numbers = count(1)


@pytest.fixture(scope="package")
def cluster() -> Iterator[Cluster]:
    with running_cluster(arguments=HOLLOW_NODES) as running:
        running.install_carina()
        yield running


@pytest.fixture(scope="package")
def site(cluster: Cluster) -> Iterator[Site]:
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        yield Site(cluster, client)


@pytest.fixture(scope="package")
def kubelet(site: Site) -> Iterator[HollowKubelet]:
    kubelet = HollowKubelet(site.client)
    kubelet.start()
    yield kubelet
    kubelet.stop()


@pytest.fixture
def new_team(site: Site, kubelet: HollowKubelet) -> Iterator[Callable[..., Team]]:
    """Makes namespaces with queues of their own; their pods and claims are gone at the end."""
    made: list[Team] = []

    def new_team(**queue: Any) -> Team:
        """The queue is for the namespace, unless its spec says otherwise."""
        name = f"team-{next(_numbers)}"
        site.cluster.create_namespace(name)
        spec = {"namespaces": {"names": [name]}, **queue}
        made.append(Team(site, name, site.queue(name, **spec)))
        return made[-1]

    yield new_team
    for team in made:
        site.client.delete(NAMESPACES, team.namespace)
    for team in made:
        eventually(partial(_is_empty, team), within=60)
        _delete_queue(site, team.queue)


@pytest.fixture
def team(new_team: Callable[..., Team]) -> Team:
    """A namespace with a queue without quotas."""
    return new_team()


def _delete_queue(site: Site, name: str) -> None:
    """Deletes a queue, if it is there, whether a controller runs or not."""
    with suppress(NotFound):
        site.client.delete(QUEUES, name)
        site.client.patch(QUEUES, name, MergePatch({"metadata": {"finalizers": None}}))


def _is_empty(team: Team) -> bool:
    """Whether a namespace that is being deleted has no pods and claims; its pods end at once.

    The namespace itself stays for some seconds more.
    """
    for name in (pods := team.pods()):
        with suppress(NotFound):
            team.delete_pod(name)
    return not pods and not team.claims()
