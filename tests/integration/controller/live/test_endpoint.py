"""Probes and metrics of controllers on a real control plane."""

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from urllib.error import URLError
from urllib.request import urlopen

import pytest

from tests.eventually import eventually
from tests.integration.controller.live.site import GPU_CLASS, Site, Team

_NODE = "endpoint-0"


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The HTTP endpoint of a controller."""

    url: str

    def answers(self, path: str) -> bool:
        """Whether a probe succeeds; it does not before the process has started."""
        with suppress(URLError), urlopen(f"{self.url}{path}") as answer:
            return bool(answer.status == 200)
        return False

    def value(self, series: str) -> float | None:
        """The value of a metric."""
        with urlopen(f"{self.url}/metrics") as answer:
            for line in answer.read().decode().splitlines():
                name, _, value = line.rpartition(" ")
                if name == series:
                    return float(value)
        return None


@pytest.fixture(scope="module", autouse=True)
def node(site: Site) -> Iterator[None]:
    site.add_nodes(_NODE, gpus=4)
    yield
    site.remove_nodes(_NODE)


@contextmanager
def controller(site: Site, name: str) -> Iterator[Endpoint]:
    with socket.create_server(("127.0.0.1", 0)) as reserved:
        address = f"127.0.0.1:{reserved.getsockname()[1]}"
    with site.controller(name, http_address=address):
        endpoint = Endpoint(f"http://{address}")
        eventually(lambda: endpoint.answers("/readyz"), within=30)
        yield endpoint


def test_leader_and_who_waits_for_the_lease_are_ready(site: Site) -> None:
    with controller(site, "leads") as leader:
        eventually(lambda: leader.value("carina_leading") == 1)
        with controller(site, "waits") as waiting:
            assert waiting.value("carina_leading") == 0
            assert waiting.answers("/healthz")
            assert leader.answers("/healthz")


def test_leader_measures_queues_and_waits(site: Site, new_team: Callable[..., Team]) -> None:
    team = new_team(resources=[{"deviceClass": GPU_CLASS, "quota": 4}])
    of_resource = f'{{queue="{team.queue}",resource="deviceClass {GPU_CLASS}"}}'
    of_queue = f'{{queue="{team.queue}"}}'
    with controller(site, "measures") as endpoint:
        team.gang("runs", pods=2)
        team.gang("waits", pods=1, gpus=3)
        eventually(lambda: endpoint.value(f"carina_queue_allocated{of_resource}") == 2)
        eventually(lambda: endpoint.value(f"carina_queue_pending{of_resource}") == 3)
        eventually(lambda: endpoint.value(f"carina_queue_pending_groups{of_queue}") == 1)
        eventually(lambda: endpoint.value(f"carina_group_wait_seconds_count{of_queue}") == 1)
        assert (endpoint.value("carina_cycles_total") or 0) > 0
