"""Upstream's allocator gives the shares that the plugin publishes, as the product's does."""

from pathlib import Path
from typing import Any

import pytest

from carina_dra.allocator.preference import UPSTREAM
from carina_dra.resource import encode
from kubelet_plugin.publish.sync import resource_slices
from tests.conformance.answer import answer
from tests.oracle.compare import difference
from tests.oracle.upstream import Upstream
from tests.samples.golden_slices import NODE, simulated_pool

pytestmark = pytest.mark.oracle

_FEATURES = [
    "DRAAdminAccess",
    "DRAConsumableCapacity",
    "DRADeviceTaints",
    "DRAPartitionableDevices",
]


def whole(count: int) -> list[dict[str, Any]]:
    """The requests of a claim for whole GPUs."""
    return [_request("gpu", "gpu", count=count)]


def parts(*amounts: tuple[str, str] | None) -> list[dict[str, Any]]:
    """The requests of a claim, one for each share: memory and cores, or None for the default."""
    return [
        _request(f"part-{number}", "share", **_capacity(amount))
        for number, amount in enumerate(amounts)
    ]


def _request(name: str, device_class: str, count: int = 1, **more: Any) -> dict[str, Any]:
    """A request with the defaults of the API server."""
    exactly = {"deviceClassName": device_class, "allocationMode": "ExactCount", "count": count}
    return {"name": name, "exactly": {**exactly, **more}}


def _capacity(amounts: tuple[str, str] | None) -> dict[str, Any]:
    if amounts is None:
        return {}
    return {"capacity": {"requests": dict(zip(("memory", "cores"), amounts, strict=True))}}


HALF = ("30Gi", "40")


@pytest.mark.parametrize(
    ("claims", "devices"),
    [
        ([parts(HALF), parts(HALF), parts(HALF)], ["gpu-0-share", "gpu-0-share", "gpu-1-share"]),
        ([parts(HALF, HALF, HALF)], ["gpu-0-share", "gpu-0-share", "gpu-1-share"]),
        ([parts(("1", "1")), whole(7)], ["gpu-0-share", *(f"gpu-{n}" for n in range(1, 8))]),
        ([parts(("1", "1")), whole(8)], None),
        ([whole(8), parts(("1", "1"))], None),
        ([parts(*[("1", "1")] * 11)], [*["gpu-0-share"] * 10, "gpu-1-share"]),
        ([parts(*[None] * 11)], [*["gpu-0-share"] * 10, "gpu-1-share"]),
        ([parts(("1500M", "99500m"))], ["gpu-0-share"]),
        ([parts(("1", "101"))], None),
        ([parts(("80959Mi", "100")), parts(("1", "1"))], ["gpu-0-share", "gpu-1-share"]),
        ([parts(("81560Mi", "1"))], None),
    ],
)
def test_shares_are_given_as_upstream_gives_them(
    upstream_allocator: Upstream,
    tmp_path: Path,
    claims: list[list[dict[str, Any]]],
    devices: list[str] | None,
) -> None:
    published = resource_slices(simulated_pool("dgx-h100", tmp_path), generation=1)
    case = {
        "features": _FEATURES,
        "node": {"metadata": {"name": NODE}},
        "classes": [_class("gpu"), _class("share")],
        "slices": [
            {**encode(each), "metadata": {"name": f"slice-{index}"}}
            for index, each in enumerate(published)
        ],
        "claims": [
            {"metadata": {"name": f"claim-{index}"}, "spec": {"devices": {"requests": requests}}}
            for index, requests in enumerate(claims)
        ],
        "allocatedDevices": [],
        "allocatedSharedDevices": [],
        "consumedCapacity": [],
    }

    theirs, ours = upstream_allocator.answer(case), answer(case, UPSTREAM)

    assert difference(theirs, ours) is None
    assert _devices(theirs) == devices


def _class(kind: str) -> dict[str, Any]:
    expression = f"device.attributes['gpu.carina.dev'].type == '{kind}'"
    return {
        "metadata": {"name": kind},
        "spec": {"selectors": [{"cel": {"expression": expression}}]},
    }


def _devices(given: dict[str, Any]) -> list[str] | None:
    if "allocations" not in given:
        return None
    return [
        result["device"]
        for allocation in given["allocations"]
        for result in allocation["devices"]["results"]
    ]
