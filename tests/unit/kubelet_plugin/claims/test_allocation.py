"""What a ResourceClaim's allocation says about this node."""

from typing import Any

import pytest

from kubelet_plugin.claims.allocation import Reading, Refused, Wanted, read_allocation
from kubelet_plugin.claims.claim import ClaimReference
from tests.samples.claims import UID

DRIVER = "gpu.carina.dev"
GOOD = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "GpuConfig"}
BAD = {**GOOD, "shareing": 1}


def read(*configs: dict[str, Any], device: str = "gpu-0", admin: bool = False) -> Reading:
    """Reads a claim that was allocated a device with these configurations."""
    result: dict[str, Any] = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": "node-1",
        "device": device,
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
    assert isinstance(reading, Refused)
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
    assert isinstance(reading, Refused)
    assert str(reading.failure).startswith(
        "ResourceClaim default/train has device gpu-0-monitor allocated to request gpu without "
        "admin access"
    )
