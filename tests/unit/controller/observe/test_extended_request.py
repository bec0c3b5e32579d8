"""The requests of the claim for a pod's extended resources are those that kube-scheduler makes."""

from typing import Any

import pytest

from carina_dra.resource import ExactCount, Exactly
from controller.observe.extended_request import (
    ExtendedRequest,
    claim_spec,
    extended_requests,
)

NAME = "nvidia.com/gpu"


def container(*, always: bool = False, **requests: Any) -> dict[str, Any]:
    named = {name.replace("gpu", NAME): str(amount) for name, amount in requests.items()}
    return {"resources": {"requests": named}} | ({"restartPolicy": "Always"} if always else {})


def asked(containers: list[Any], init: list[Any] | None = None) -> dict[str, int]:
    """The counts of the requests of a claim, by name."""
    requests = extended_requests({"containers": containers, "initContainers": init or []})
    spec = claim_spec(requests, NAME, "gpu")
    counts: dict[str, int] = {}
    for request in spec.devices.requests:
        assert isinstance(request.wants, Exactly)
        exact = request.wants.request
        assert exact.device_class_name == "gpu"
        assert isinstance(exact.mode, ExactCount)
        counts[request.name] = exact.mode.count
    return counts


def test_each_container_has_a_request_of_its_own() -> None:
    assert asked([container(gpu=1), container(), container(gpu=2)]) == {
        "container-0-request-0": 1,
        "container-2-request-0": 2,
    }


def test_request_is_named_by_its_place_among_all_resources_of_the_container() -> None:
    assert asked([container(cpu=1, memory=1, gpu=1, zzz=1)]) == {"container-0-request-2": 1}


def test_init_container_uses_the_devices_of_containers_after_it() -> None:
    assert asked([container(gpu=2)], [container(gpu=2)]) == {"container-1-request-0": 2}


def test_init_container_asks_for_what_these_do_not_have() -> None:
    assert asked([container(gpu=2)], [container(gpu=5)]) == {
        "container-0-request-0": 3,
        "container-1-request-0": 2,
    }


def test_only_the_largest_request_of_init_containers_counts() -> None:
    assert asked([container()], [container(gpu=1), container(gpu=3), container(gpu=2)]) == {
        "container-1-request-0": 3
    }


def test_init_container_cannot_use_those_of_a_sidecar_before_it() -> None:
    sidecar, then = container(always=True, gpu=1), container(gpu=1)
    assert asked([container()], [sidecar, then]) == {
        "container-0-request-0": 1,
        "container-1-request-0": 1,
    }
    assert asked([container()], [then, sidecar]) == {"container-1-request-0": 1}


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        ("nvidia.com/gpu", True),
        ("deviceclass.resource.kubernetes.io/gpu", True),
        ("kubernetes.io/batch-cpu", False),
        ("hugepages-2Mi", False),
        ("requests.nvidia.com/gpu", False),
        ("cpu", False),
    ],
)
def test_only_extended_resources_count(name: str, *, counts: bool) -> None:
    spec = {"containers": [{"resources": {"requests": {name: "1"}}}]}
    assert bool(extended_requests(spec)) == counts


def test_none_of_a_resource_is_no_request() -> None:
    assert not extended_requests({"containers": [container(gpu=0)]})


def test_equal_pods_share_one_value() -> None:
    first, second = ({"containers": [container(gpu=1)]} for _ in range(2))
    assert extended_requests(first) is extended_requests(second)
    requests = extended_requests(first)
    assert requests == (ExtendedRequest(NAME, 0, 0, 1, ends_early=False),)
    assert claim_spec(requests, NAME, "gpu") is claim_spec(requests, NAME, "gpu")


def test_order_in_which_a_container_names_resources_does_not_matter() -> None:
    requests = {NAME: "1", "example.com/nic": "1"}, {"example.com/nic": "1", NAME: "1"}
    first, second = ({"containers": [{"resources": {"requests": one}}]} for one in requests)
    assert extended_requests(first) is extended_requests(second)


def test_number_of_requests_that_a_tenant_makes_is_bounded() -> None:
    spec = {"containers": [container(gpu=1) for _ in range(1000)]}
    assert len(extended_requests(spec)) == 64
