"""The benchmark of the controller, on a fleet small enough for every run of the tests."""

from collections.abc import Iterator

import pytest

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS
from tests.benchmarks.controller import comparison, trial
from tests.benchmarks.controller.carina import CarinaController
from tests.benchmarks.controller.comparison import Size
from tests.benchmarks.controller.cost import Meter
from tests.benchmarks.controller.results import Goals
from tests.benchmarks.controller.scheduler import KubeScheduler
from tests.benchmarks.controller.site import Site, running_site
from tests.benchmarks.measurement import Measurement

pytestmark = pytest.mark.kubernetes

_PODS = 40
_STOCK = KubeScheduler()
_OURS = CarinaController()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    with running_site(20) as running:
        yield running


def test_kube_scheduler_makes_two_writes_for_a_claim_and_a_binding_for_a_pod(site: Site) -> None:
    requests = trial.schedule(site, _STOCK, (), _PODS).cost.requests

    for kind in (
        "POST pods",
        "POST pods/binding",
        "POST resourceclaims",
        "PUT resourceclaims",
        "PUT resourceclaims/status",
    ):
        assert round(requests[kind] / _PODS) == 1, kind  # some are repeated after a conflict


def test_the_controller_makes_a_write_for_a_claim_and_one_for_a_pod(site: Site) -> None:
    with _OURS.running(site) as own:
        requests = trial.schedule(site, _OURS, own, _PODS).cost.requests

    for kind in (
        "POST pods",
        "PATCH pods",
        "POST pods/binding",
        "POST resourceclaims",
        "PATCH resourceclaims/status",
    ):
        assert round(requests[kind] / _PODS) == 1, kind
    for kind in ("PATCH resourceclaims", "PUT resourceclaims", "PUT resourceclaims/status"):
        assert not requests[kind], kind


def test_nothing_is_left_of_a_trial(site: Site) -> None:
    trial.schedule(site, _STOCK, (), _PODS)

    of_carina = {"carina-system"}  # the pods of deploy/, which nobody runs here
    pods = site.client.list(PODS).items
    assert {pod["metadata"]["namespace"] for pod in pods} <= of_carina
    assert not site.client.list(RESOURCE_CLAIMS).items


def test_meter_counts_what_is_requested_and_not_what_it_requests_itself(site: Site) -> None:
    meter = Meter(site.cluster, site.cluster.control_plane.processes)
    site.client.list(PODS)
    site.client.list(PODS)

    assert meter.stop().requests["LIST pods"] == 2


def test_everything_is_measured_of_both(site: Site) -> None:
    heard: list[Measurement] = []
    size = Size(pods=16, gang=8, warm_up=2, rounds=2, rounds_s=60.0, refusals=2, idle_s=0.1)

    comparison.measure_on(site, heard.append, size, Goals(binding=1.0))

    measured = {each.what.removeprefix("20 nodes, "): each.value for each in heard}
    for who in ("kube-scheduler", "carina-controller"):
        for what in (
            "from one bound pod to the next",
            "API server and etcd, processor time a pod",
            "requests a pod",
            "8 pods together, until all are bound",
            'until a "no" is seen',
        ):
            assert measured[f"{who}: {what}"] > 0, (who, what)
    for what in ("from one bound pod to the next", "requests"):
        assert measured[f"carina-controller / kube-scheduler: {what}"] > 0, what
