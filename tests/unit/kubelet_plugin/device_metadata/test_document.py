"""Device metadata as containers read it.

data/device_metadata has what upstream's own code writes.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import BoolAttribute, Device, IntAttribute, StringAttribute, decode
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.device_metadata.document import (
    DescribedDevice,
    MetadataNameError,
    RequestMetadata,
    described,
    generation_of,
    render_metadata,
)
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.partition import Partition
from kubelet_plugin.devices.publish_settings import PublishSettings
from tests.samples.claims import allocated, allocated_share
from tests.samples.gpus import LAYOUT, MIG, gpu, monitor, observed, share, whole

DRIVER = "gpu.carina.dev"
SETTINGS = PublishSettings(DRIVER)
DATA = Path(__file__).parents[1] / "data/device_metadata"
CASES: Mapping[str, Any] = json.loads((DATA / "cases.json").read_text())
PATHS: Mapping[str, str] = json.loads((DATA / "paths.json").read_text())


def metadata_of(case: Mapping[str, Any]) -> RequestMetadata:
    request, _, subrequest = case["request"].partition("/")
    claim = NodeClaim(
        case["claim"]["uid"],
        case["claim"]["namespace"],
        case["claim"]["name"],
        (),
        pod_claim=case.get("podClaimName"),
        subrequests={request: subrequest} if subrequest else {},
    )
    return RequestMetadata(DRIVER, claim, request, tuple(map(device_of, case["devices"])))


def device_of(body: Mapping[str, Any]) -> DescribedDevice:
    device = decode(Device, {name: body[name] for name in ("name", "attributes")})
    return DescribedDevice(body["pool"], device.name, device.attributes)


def metadata(
    name: str = "train", *, pod_claim: str | None = None, request: str = "gpu"
) -> RequestMetadata:
    claim = NodeClaim("uid-1", "default", name, (), pod_claim=pod_claim)
    return RequestMetadata(DRIVER, claim, request, (DescribedDevice("node-1", "gpu-0", {}),))


def described_as(
    device: GpuDevice, of: AllocatedDevice | None = None, uuid: str | None = None
) -> DescribedDevice:
    return described(of or allocated(device.name), device, uuid, SETTINGS)


@pytest.mark.parametrize("name", CASES)
def test_content_is_what_upstream_writes(name: str) -> None:
    case = CASES[name]

    content = render_metadata(metadata_of(case), case["generation"])

    assert content == (DATA / f"{name}.stream").read_bytes()


@pytest.mark.parametrize("name", CASES)
def test_the_path_in_containers_is_where_upstream_looks_for_it(name: str) -> None:
    assert metadata_of(CASES[name]).container_path == PATHS[name]


@pytest.mark.parametrize("name", CASES)
def test_the_generation_can_be_read_back(name: str) -> None:
    assert generation_of((DATA / f"{name}.stream").read_bytes()) == CASES[name]["generation"]


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"{",
        b"[]",
        b"7",
        b"\xff",
        b"{}",
        b'{"metadata": {}}',
        b'{"metadata": {"generation": "x"}}',
        b'{"metadata": {"generation": 1e999}}',
        b'{"metadata": {"generation": -1}}',
        b'{"metadata": {"generation": 9223372036854775807}}',
        b"[" * 100_000,
    ],
    ids=lambda content: repr(content[:40]),
)
def test_damaged_content_has_no_generation(content: bytes) -> None:
    assert generation_of(content) == 0


@given(st.text(max_size=64))
def test_consumers_read_the_attribute_that_was_written(text: str) -> None:
    device = DescribedDevice("node-1", "gpu-0", {"productName": StringAttribute(text)})
    claim = NodeClaim("uid-1", "default", "train", ())

    content = render_metadata(RequestMetadata(DRIVER, claim, "gpu", (device,)), 1).decode()

    first, end = json.JSONDecoder().raw_decode(content)
    second = json.loads(content[end:])
    for document in (first, second):
        (described_device,) = document["requests"][0]["devices"]
        assert described_device["attributes"] == {"productName": {"string": text}}
    versions = [document["apiVersion"].rpartition("/")[2] for document in (first, second)]
    assert versions == ["v1beta1", "v1alpha1"]


@pytest.mark.parametrize(
    "named",
    [
        metadata(pod_claim="../../etc"),
        metadata(pod_claim="a.b"),
        metadata(pod_claim="Gpu"),
        metadata(".."),
        metadata(request=".."),
        metadata(request="a/b"),
        metadata(request="gpu\n"),
    ],
    ids=lambda named: repr((named.claim.pod_claim, named.claim.name, named.request)),
)
def test_names_that_are_no_part_of_a_path_are_refused(named: RequestMetadata) -> None:
    with pytest.raises(MetadataNameError, match="must consist of lowercase letters, digits"):
        _ = named.container_path


@pytest.mark.parametrize("device", [whole(0), share(0), monitor(0)], ids=lambda device: device.name)
def test_a_device_has_the_attributes_of_its_slice(device: GpuDevice) -> None:
    assert described_as(device).attributes == device.published(SETTINGS).attributes


def test_a_partition_has_the_uuid_with_which_it_was_made() -> None:
    seen = observed(0, mig=MIG)
    (profile,) = LAYOUT.profiles
    partition = Partition(seen.gpu, seen.state, profile, profile.placements[0])
    assert "uuid" not in partition.published(SETTINGS).attributes

    attributes = described_as(partition, uuid="MIG-1").attributes

    assert attributes["uuid"] == StringAttribute("MIG-1")
    assert attributes["parentUUID"] == StringAttribute(gpu(0).uuid)


def test_a_share_has_its_amounts() -> None:
    of = allocated_share("gpu-0-share", share_id="s-1", memory="30Gi", cores=40)

    attributes = described_as(share(0), of).attributes

    assert attributes["memoryMiB"] == IntAttribute(30720)
    assert attributes["coresPercent"] == IntAttribute(40)
    assert list(attributes) == sorted(attributes)


@pytest.mark.parametrize(("limited", "level"), [(True, "kernel"), (False, "none")])
def test_a_share_says_what_keeps_its_claim_within_it_and_not_what_the_device_has(
    limited: bool, level: str
) -> None:
    shared = share(0, memory_limits=True)
    of = allocated_share("gpu-0-share", share_id="s-1", memory="30Gi", cores=40)

    attributes = described(of, shared, None, SETTINGS, limited=limited).attributes

    assert attributes["memoryEnforcement"] == StringAttribute(level)
    assert attributes["memoryEnforcementKernel"] == BoolAttribute(limited)


@pytest.mark.parametrize(("mps", "level"), [(True, "mps"), (False, "none")])
def test_a_share_says_whether_its_claim_has_an_mps_daemon(mps: bool, level: str) -> None:
    of = allocated_share("gpu-0-share", share_id="s-1", memory="30Gi", cores=40)

    attributes = described(of, share(0), None, SETTINGS, mps=mps).attributes

    assert attributes["memoryEnforcement"] == StringAttribute(level)
    assert attributes["coreEnforcementMPS"] == BoolAttribute(mps)


def test_the_sight_of_a_shared_gpu_has_no_amounts() -> None:
    attributes = described_as(share(0), allocated("gpu-0-share", admin_access=True)).attributes

    assert not {"memoryMiB", "coresPercent"} & attributes.keys()
