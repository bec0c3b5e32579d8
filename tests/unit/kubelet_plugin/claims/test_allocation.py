"""What a ResourceClaim's allocation says about this node."""

from typing import Any

import pytest

from carina_dra.config.device import Enforcement, GpuConfig, ShareConfig
from kubelet_plugin.claims.allocation import (
    ClaimRefused,
    Misconfigured,
    Reading,
    Wanted,
    read_allocation,
)
from kubelet_plugin.claims.claim import ClaimReference
from tests.samples.claims import UID

DRIVER = "gpu.carina.dev"
GOOD = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "GpuConfig"}
BAD = {**GOOD, "shareing": 1}


SHARE: dict[str, Any] = {"shareID": "s-1", "consumedCapacity": {"memory": "30Gi", "cores": "40"}}


def read(
    *configs: dict[str, Any], device: str = "gpu-0", admin: bool = False, **share: Any
) -> Reading:
    """Reads a claim that was allocated a device with these configurations."""
    result: dict[str, Any] = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "node-1",
        "device": device,
        **share,
    }
    if admin:
        result["adminAccess"] = True
    body = {
        "metadata": {"namespace": "default", "name": "train", "uid": UID},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": [result], "config": list(configs)}}},
    }
    claim = ClaimReference(UID, "default", "train")
    return read_allocation(body, claim, driver=DRIVER, pool="node-1")


def config(
    parameters: dict[str, Any],
    source: str = "FromClaim",
    driver: str = DRIVER,
    requests: tuple[str, ...] = (),
) -> dict[str, Any]:
    opaque = {"driver": driver, "parameters": parameters}
    return {"source": source, "requests": list(requests), "opaque": opaque}


@pytest.mark.parametrize(
    ("source", "words"), [("FromClass", "of the DeviceClass"), ("FromClaim", "of the claim")]
)
def test_a_configuration_with_a_mistake_is_refused_by_its_place(source: str, words: str) -> None:
    reading = read(config(GOOD), config(BAD, source))
    assert isinstance(reading, Misconfigured)
    assert [device.config for device in reading.claim.devices] == [GpuConfig()]
    assert str(reading.failure).startswith(
        f"ResourceClaim default/train, status.allocation.devices.config[1] ({words}): "
        "opaque.parameters.shareing is not a field"
    )


@pytest.mark.parametrize(
    "foreign",
    [config(BAD, driver="other"), config(BAD, requests=("nic",)), {"source": "FromClaim"}],
    ids=["another driver's", "another request's", "of no known kind"],
)
def test_a_configuration_that_is_for_others_is_left_alone(foreign: dict[str, Any]) -> None:
    assert isinstance(read(foreign, config(GOOD)), Wanted)


def test_monitor_is_for_claims_with_admin_access_only() -> None:
    assert isinstance(read(device="gpu-0-monitor", admin=True), Wanted)

    reading = read(device="gpu-0-monitor")
    assert isinstance(reading, ClaimRefused)
    assert str(reading.failure).startswith(
        "ResourceClaim default/train has device gpu-0-monitor allocated to request gpu without "
        "admin access"
    )


def test_share_takes_a_share_config() -> None:
    demand = {**GOOD, "kind": "ShareConfig", "enforcement": {"cores": "time-slice"}}
    reading = read(config(demand), device="gpu-0-share", **SHARE)

    assert isinstance(reading, Wanted)
    (device,) = reading.claim.devices
    assert device.config == ShareConfig(enforcement=Enforcement(cores=("time-slice",)))
    assert {name: str(amount) for name, amount in device.consumed_capacity.items()} == {
        "memory": "30Gi",
        "cores": "40",
    }


def test_share_takes_no_gpu_config() -> None:
    reading = read(config(GOOD), device="gpu-0-share", **SHARE)

    assert isinstance(reading, Misconfigured)
    assert "kind GpuConfig is not for device gpu-0-share" in str(reading.failure)


@pytest.mark.parametrize(
    ("share", "problem"),
    [
        ({}, "as a whole, without shareID"),
        ({**SHARE, "shareID": None}, "as a whole, without shareID"),
        ({"shareID": "s-1"}, "without amounts of memory and cores in consumedCapacity"),
        (
            {"shareID": "s-1", "consumedCapacity": {"memory": "30Gi"}},
            "without amounts of memory and cores in consumedCapacity",
        ),
        (
            {"shareID": "s-1", "consumedCapacity": {"memory": "1Ki", "cores": "40"}},
            "without amounts of memory and cores in consumedCapacity",
        ),
    ],
    ids=["nothing", "no ID", "no amounts", "no cores", "no whole MiB"],
)
def test_share_that_the_scheduler_did_not_account_for_is_refused(
    share: dict[str, Any], problem: str
) -> None:
    reading = read(device="gpu-0-share", **share)

    assert isinstance(reading, ClaimRefused)
    assert str(reading.failure) == (
        f"ResourceClaim default/train has device gpu-0-share allocated to request gpu {problem}; "
        "switch on the feature gate DRAConsumableCapacity in kube-apiserver and kube-scheduler, "
        "and delete the pod so that it gets a share"
    )


@pytest.mark.parametrize("share", [{}, SHARE], ids=["without an ID", "with an ID"])
def test_admin_access_to_shares_holds_nothing(share: dict[str, Any]) -> None:
    reading = read(device="gpu-0-share", admin=True, **share)

    assert isinstance(reading, Wanted)
    assert reading.claim.holds == ()
    assert reading.claim.gpus == {"gpu-0"}


def read_reserved(*consumers: dict[str, str]) -> Reading:
    """Reads a claim that is reserved for these."""
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    body = {
        "metadata": {"namespace": "default", "name": "train", "uid": UID},
        "spec": {"devices": {"requests": []}},
        "status": {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"name": consumer["uid"], **consumer} for consumer in consumers],
        },
    }
    claim = ClaimReference(UID, "default", "train")
    return read_allocation(body, claim, driver=DRIVER, pool="node-1")


def read_named(request: str, annotations: dict[str, str]) -> Reading:
    result = {"request": request, "driver": DRIVER, "pool": "node-1", "device": "gpu-0"}
    metadata = {"namespace": "default", "name": "train", "uid": UID, "annotations": annotations}
    body = {
        "metadata": metadata,
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }
    claim = ClaimReference(UID, "default", "train")
    return read_allocation(body, claim, driver=DRIVER, pool="node-1")


@pytest.mark.parametrize(
    ("annotations", "pod_claim"),
    [
        ({}, None),
        ({"resource.kubernetes.io/pod-claim-name": "gpu"}, "gpu"),
        ({"resource.kubernetes.io/pod-claim-name": ""}, None),
        ({"resource.kubernetes.io/pod-claim-name": "a" * 63}, "a" * 63),
        ({"resource.kubernetes.io/pod-claim-name": "a" * 64}, None),
        ({"resource.kubernetes.io/pod-claim-name": "../gpu"}, None),
        ({"resource.kubernetes.io/pod-claim-name": "gpu\n"}, None),
        ({"example.com/pod-claim-name": "gpu"}, None),
    ],
)
def test_name_in_the_pod_of_a_claim_that_a_template_made(
    annotations: dict[str, str], pod_claim: str | None
) -> None:
    reading = read_named("gpu", annotations)

    assert isinstance(reading, Wanted)
    assert reading.claim.pod_claim == pod_claim


@pytest.mark.parametrize(
    ("request_name", "subrequests"), [("gpu", {}), ("gpu/small", {"gpu": "small"})]
)
def test_name_of_the_alternative_that_was_allocated(
    request_name: str, subrequests: dict[str, str]
) -> None:
    reading = read_named(request_name, {})

    assert isinstance(reading, Wanted)
    (device,) = reading.claim.devices
    assert (device.request, reading.claim.subrequests) == ("gpu", subrequests)


@pytest.mark.parametrize(
    ("consumers", "pods"),
    [
        ([], ()),
        ([{"resource": "pods", "uid": "5f0c"}], ("5f0c",)),
        ([{"resource": "pods", "uid": "b"}, {"resource": "pods", "uid": "a"}], ("a", "b")),
        ([{"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "uid": "a"}], ()),
        (
            [
                {"resource": "pods", "uid": "a"},
                {"apiGroup": "scheduling.k8s.io", "resource": "podgroups", "uid": "b"},
            ],
            (),
        ),
        ([{"apiGroup": "example.com", "resource": "pods", "uid": "a"}], ()),
    ],
)
def test_which_pods_use_it_is_known_if_nothing_else_does(
    consumers: list[dict[str, str]], pods: tuple[str, ...]
) -> None:
    reading = read_reserved(*consumers)

    assert isinstance(reading, Wanted)
    assert reading.claim.pods == pods
