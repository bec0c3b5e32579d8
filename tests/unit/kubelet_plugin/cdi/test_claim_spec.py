"""What a claim's spec holds, and whose it is."""

import itertools
import json
import os
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.cdi.claim_spec import (
    InjectedDevice,
    cdi_device_id,
    claim_of,
    claim_spec,
    driver_edits,
    prepared_devices,
)
from kubelet_plugin.cdi.driver_files import DriverFile, DriverFiles, Library
from kubelet_plugin.cdi.spec import (
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    DeviceNode,
    Mount,
    render_spec,
)
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim, PreparedDevice
from tests.samples.claims import UID, allocated, allocated_share, claim
from tests.samples.gpus import share, whole

DRIVER = "gpu.carina.dev"
GOLDEN = Path(__file__).parents[1] / "golden"
CONTROL_NODES = tuple(
    DeviceNode(f"/dev/{name}", f"/dev/{name}")
    for name in ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
)
LABEL = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,6}[a-z0-9])?", fullmatch=True)


def driver_files(hook: str | None) -> DriverFiles:
    def library(name: str, *links: str) -> Library:
        path = f"/usr/lib64/{name}.so.550.163.01"
        return Library(f"/run/nvidia/driver{path}", path, links)

    def file(path: str) -> DriverFile:
        return DriverFile(f"/run/nvidia/driver{path}", path)

    return DriverFiles(
        version="550.163.01",
        libraries=(
            library("libcuda", "libcuda.so", "libcuda.so.1"),
            library("libnvidia-gpucomp"),
            library("libnvidia-ml", "libnvidia-ml.so.1"),
        ),
        binaries=(file("/usr/bin/nvidia-smi"),),
        sockets=(file("/run/nvidia-persistenced/socket"),),
        firmware=(file("/lib/firmware/nvidia/550.163.01/gsp_ga10x.bin"),),
        hook=hook,
    )


def spec(
    prepared: NodeClaim,
    shared: ContainerEdits | None = None,
    *,
    metadata: Mapping[str, Mount] | None = None,
) -> CdiSpec:
    names = {device.device for device in prepared.devices}
    devices = {
        name: share(0) if name == "gpu-0-share" else whole(number)
        for number, name in enumerate(sorted(names))
    }
    injected = {
        name: InjectedDevice(
            device.gpu.uuid,
            (DeviceNode(f"/dev/nvidia{device.gpu.minor}", f"/dev/nvidia{device.gpu.minor}"),),
        )
        for name, device in devices.items()
    }
    shared = shared or ContainerEdits()
    return claim_spec(DRIVER, prepared, devices, injected, shared, metadata=metadata or {})


@pytest.mark.parametrize(
    ("golden", "prepared", "hook"),
    [
        ("cdi-one-gpu-with-hook", claim(), "/usr/bin/nvidia-cdi-hook"),
        ("cdi-one-gpu-without-hook", claim(), None),
        (
            "cdi-requests-admin-share",
            claim(
                allocated("gpu-0", "train"),
                allocated("gpu-1", "train"),
                allocated("gpu-0", "watch-all", admin_access=True),
                allocated("gpu-1", "part", share_id="5e3f"),
            ),
            "/usr/bin/nvidia-cdi-hook",
        ),
        (
            "cdi-shares",
            claim(
                allocated_share("gpu-0-share", "train", share_id="5e3f"),
                allocated_share("gpu-0-share", "infer", share_id="77a0", memory="1536Mi", cores=5),
                allocated("gpu-0-share", "watch", admin_access=True, share_id="9c1b"),
            ),
            "/usr/bin/nvidia-cdi-hook",
        ),
    ],
)
def test_specs_are_as_written_down(golden: str, prepared: NodeClaim, hook: str | None) -> None:
    content = render_spec(spec(prepared, driver_edits(driver_files(hook), CONTROL_NODES)))
    file = GOLDEN / f"{golden}.json"
    if os.environ.get("WRITE_GOLDEN"):
        file.write_text(json.dumps(json.loads(content), indent=2) + "\n")
    assert json.loads(content) == json.loads(file.read_bytes())


def test_the_kubelet_is_given_the_names_that_are_in_the_spec() -> None:
    prepared = claim(allocated("gpu-0", "a"), allocated("gpu-1", "b", share_id="5e3f"))
    names = [f"{DRIVER}/claim={device.name}" for device in spec(prepared).devices]
    assert prepared_devices(DRIVER, prepared) == (
        PreparedDevice("a", "node-1", "gpu-0", (names[0],), None),
        PreparedDevice("b", "node-1", "gpu-1", (names[1],), "5e3f"),
    )
    assert [cdi_device_id(DRIVER, prepared, device) for device in prepared.devices] == names


def test_each_share_of_a_gpu_has_a_name_of_its_own() -> None:
    prepared = claim(
        allocated_share("gpu-0-share", "a", share_id="5e3f"),
        allocated_share("gpu-0-share", "b", share_id="77a0"),
    )
    one, other = prepared_devices(DRIVER, prepared)
    assert (one.device, other.device) == ("gpu-0-share", "gpu-0-share")
    assert (one.share_id, other.share_id) == ("5e3f", "77a0")
    assert one.cdi_ids != other.cdi_ids
    names = [f"{DRIVER}/claim={device.name}" for device in spec(prepared).devices]
    assert [*one.cdi_ids, *other.cdi_ids] == names


def test_a_container_gets_the_metadata_of_a_request_once() -> None:
    prepared = claim(
        allocated("gpu-0", "train"), allocated("gpu-1", "train"), allocated("gpu-2", "infer")
    )
    mounts = {name: Mount(f"/host/{name}", f"/container/{name}") for name in ("train", "infer")}

    made = spec(prepared, metadata=mounts)

    assert [device.edits.mounts for device in made.devices] == [
        (mounts["train"],),
        (),
        (mounts["infer"],),
    ]
    assert [device.edits.mounts for device in spec(prepared).devices] == [(), (), ()]


def test_part_of_a_mib_is_not_promised_to_a_container() -> None:
    (device,) = spec(claim(allocated_share("gpu-0-share", share_id="a", memory="2097151"))).devices
    assert any(variable.endswith("_MEMORY_MIB=1") for variable in device.edits.env)


def test_share_without_amounts_is_refused() -> None:
    with pytest.raises(CdiSpecError, match="device gpu-0-share of request gpu has no amounts"):
        spec(claim(allocated("gpu-0-share", share_id="5e3f")))


def test_the_loader_s_folders_are_sorted_so_that_equal_files_give_equal_specs() -> None:
    folders = [f"/usr/lib/{name}" for name in ("f", "b", "e", "a", "d", "c")]
    libraries = tuple(
        Library(f"{folder}/libcuda.so.1", f"{folder}/libcuda.so.1", ()) for folder in folders
    )
    files = replace(driver_files("/usr/bin/nvidia-cdi-hook"), libraries=libraries)
    hooks = driver_edits(files, CONTROL_NODES).hooks
    (loader,) = (hook.arguments for hook in hooks if "update-ldcache" in hook.arguments)
    assert [argument for argument in loader if argument in folders] == sorted(folders)


def test_a_spec_names_its_owner() -> None:
    content = render_spec(spec(claim(name="train.set-1")))
    assert claim_of(content) == ClaimReference(UID, "default", "train.set-1")


@pytest.mark.parametrize(
    "content",
    [b"", b"{", b"[]", b"null", b"\xff", b"{}", b'{"containerEdits": {}}']
    + [
        json.dumps({"containerEdits": {"env": env}}).encode()
        for env in ([], 1, [1], ["A=b"], ["CARINA_CLAIM_a=b"], ["CARINA_CLAIM_a_DEVICE_b=c/d"])
    ],
)
def test_of_a_damaged_spec_it_is_not_known_whose_it_is(content: bytes) -> None:
    assert claim_of(content) is None


@given(st.binary(max_size=200))
def test_reading_whose_a_spec_is_never_fails(content: bytes) -> None:
    assert claim_of(content) is None


@given(st.lists(st.tuples(LABEL, LABEL, LABEL, st.none() | LABEL), unique=True, max_size=6))
def test_no_two_grants_share_a_device_name_or_a_variable(
    grants_of_claims: list[tuple[str, str, str, str | None]],
) -> None:
    specs = [
        spec(claim(allocated(device, request, admin_access=True, share_id=share), uid=uid))
        for uid, request, device, share in grants_of_claims
    ]
    devices = list(itertools.chain.from_iterable(spec.devices for spec in specs))
    names = [device.name for device in devices]
    variables = [v.partition("=")[0] for device in devices for v in device.edits.env]
    assert len(set(names)) == len(names)
    assert len(set(variables)) == len(variables)


@pytest.mark.parametrize("name", ["A", "a_b", "a.b", "-a", "", "a/b", "a\n"])
def test_names_that_the_api_does_not_allow_are_refused(name: str) -> None:
    with pytest.raises(CdiSpecError, match="lowercase letters"):
        spec(claim(allocated("gpu-0", name)))
    with pytest.raises(CdiSpecError, match="lowercase letters"):
        spec(claim(uid=name))
