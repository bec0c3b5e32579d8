"""What a claim needs, and the CDI spec that it gets, on a simulated node's files."""

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from carina_dra.config.device import Enforcement, GpuConfig, ShareConfig, TimeSlicingConfig
from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.failure import (
    ClaimError,
    ClaimFailure,
    DeviceMissing,
    DeviceUnhealthy,
    DriverUnknown,
    EnforcementMissing,
    NodeResourceFailed,
    ShareHeld,
    TimeSlicingMissing,
)
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    Degraded,
    DriverVerdict,
    FoundByDriver,
    GpuProblem,
)
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.resource import TimeSlice
from kubelet_plugin.prepare.wanted import identities, refuse_unfit, wanted
from simulation.nvml import SimulatedNode
from tests.fakes.node_ports import node_ports
from tests.samples.claims import UID, allocated, allocated_share, claim
from tests.samples.driver import installed_at
from tests.samples.gpus import LOST, NOTICED, UNREADABLE, gpu, monitor, share, whole

DRIVER = "gpu.carina.dev"


class Node:
    """A node, whose devices the test says."""

    def __init__(self, directory: Path) -> None:
        self.device_metadata = False
        self.metadata = directory / "device-metadata"
        self.simulated = SimulatedNode.create(directory / "node", "t4")
        self.version = self.simulated.hardware.driver_version
        self.devices: dict[str, GpuDevice] = {}
        self.has("gpu-0")
        self.folder = directory / "cdi"
        self.preparer = Preparer(
            node_ports(
                CdiSpecs(
                    driver=DRIVER,
                    driver_root=DriverRoot(installed_at(self.simulated.root, Path("/"))),
                    host=HostPaths(self.simulated.root),
                    host_device_root=Path("/"),
                    directory=CdiDirectory(self.folder, DRIVER),
                ),
                root=self.simulated.root,
                intents=directory / "mig",
                boot_id="boot-1",
            ),
            identities=identities,
            wanted=lambda claims, live: wanted(
                claims, live, self.devices, device_metadata=self.device_metadata
            ),
            answer=lambda claim: prepared_devices(DRIVER, claim),
        )

    def has(self, name: str, *problems: GpuProblem, **facts: Any) -> None:
        minor = int(name.removeprefix("gpu-"))
        facts = {"driver_version": self.version, **facts}
        self.devices[name] = whole(minor, *problems, **facts)

    def make(self, wanted: NodeClaim) -> None:
        self.preparer.reconcile((wanted,), {wanted.uid: wanted})

    def remove(self, unwanted: NodeClaim) -> None:
        self.preparer.reconcile((unwanted,), {})

    @property
    def spec(self) -> Path:
        return self.folder / f"{DRIVER}-claim_{UID}.json"

    @property
    def driver_library(self) -> Path:
        return self.simulated.root / f"usr/lib/x86_64-linux-gnu/libcuda.so.{self.version}"


@pytest.fixture
def node(tmp_path: Path) -> Node:
    node = Node(tmp_path)
    if not (node.simulated.root / "dev/nvidia0").is_char_device():
        pytest.skip("no right to make device nodes")
    return node


def test_a_made_claim_has_a_spec_with_what_is_granted(node: Node) -> None:
    node.make(claim())
    spec = json.loads(node.spec.read_bytes())
    [device] = spec["devices"]
    [prepared] = node.preparer.prepared_devices(claim())
    assert prepared.cdi_ids == (f"{spec['kind']}={device['name']}",)
    assert [entry["hostPath"] for entry in device["containerEdits"]["deviceNodes"]] == [
        "/dev/nvidia0"
    ]
    assert any(value.endswith(gpu(0).uuid) for value in device["containerEdits"]["env"])


def test_a_gpu_with_a_problem_can_be_monitored(node: Node) -> None:
    node.devices["gpu-0-monitor"] = monitor(0, LOST, driver_version=node.version)
    node.make(claim(allocated("gpu-0-monitor", admin_access=True)))
    [device] = json.loads(node.spec.read_bytes())["devices"]
    edits = device["containerEdits"]
    nodes = [entry["hostPath"] for entry in edits["deviceNodes"]]
    assert nodes == ["/dev/nvidia0", "/dev/nvidia-caps/nvidia-cap2"]
    assert {value.partition("=")[2] for value in edits["env"]} == {gpu(0).uuid, "true"}


def test_two_requests_with_shares_of_a_gpu_have_a_device_each(node: Node) -> None:
    node.devices["gpu-0-share"] = share(0, driver_version=node.version)
    shares = claim(
        allocated_share("gpu-0-share", "train", share_id="s-1"),
        allocated_share("gpu-0-share", "infer", share_id="s-2", memory="10Gi", cores=20),
    )
    node.make(shares)
    train, infer = json.loads(node.spec.read_bytes())["devices"]
    for device, amounts in ((train, {"30720", "40"}), (infer, {"10240", "20"})):
        edits = device["containerEdits"]
        assert [entry["hostPath"] for entry in edits["deviceNodes"]] == ["/dev/nvidia0"]
        values = {value.partition("=")[2] for value in edits["env"]}
        assert values == {gpu(0).uuid, "none", "time-slice"} | amounts


@pytest.mark.parametrize(
    ("memory", "cores", "missing"),
    [
        ("15Gi", 60, None),
        ("15Gi", 61, ("cores", "101 %", "100 %")),
        ("15361Mi", 60, ("memory", "46081 MiB", "46080 MiB")),
        ("1Ei", 1, ("memory", f"{2**40 + 30 * 2**10} MiB", "46080 MiB")),
    ],
)
def test_shares_that_are_held_never_add_up_to_more_than_the_gpu(
    memory: str, cores: int, missing: tuple[str, str, str] | None
) -> None:
    """A claim whose pod was deleted may still be held when the next one is prepared."""
    held = claim(allocated_share("gpu-0-share", share_id="s-1"), uid="held")
    next_one = claim(
        allocated_share("gpu-0-share", share_id="s-2", memory=memory, cores=cores),
        allocated("gpu-1-monitor", admin_access=True),
    )
    devices: dict[str, GpuDevice] = {"gpu-0-share": share(0), "gpu-1-monitor": monitor(1)}
    if missing is None:
        assert wanted([next_one], [held, next_one], devices)
    else:
        with pytest.raises(ClaimError) as caught:
            wanted([next_one], [held, next_one], devices)
        assert caught.value.failure == ShareHeld(next_one, "gpu-0-share", *missing)
    assert wanted([held], [held], devices)


def test_a_lost_gpu_has_no_shares_to_give(node: Node) -> None:
    node.devices["gpu-0-share"] = share(0, LOST, driver_version=node.version)
    with pytest.raises(ClaimError) as caught:
        node.make(claim(allocated_share("gpu-0-share", share_id="s-1")))
    assert isinstance(caught.value.failure, DeviceUnhealthy)
    assert not node.spec.exists()


@pytest.mark.parametrize(
    ("demanded", "missing"),
    [
        (Enforcement(), ()),
        (Enforcement(cores=("time-slice",)), ()),
        (Enforcement(memory=("mps",)), ("mps",)),
        (Enforcement(memory=("kernel", "watchdog"), cores=("mps",)), ("kernel", "watchdog", "mps")),
        (Enforcement(cores=("mps", "time-slice")), ("mps",)),
    ],
)
def test_a_share_that_lacks_a_level_that_is_demanded_is_refused(
    demanded: Enforcement, missing: tuple[str, ...]
) -> None:
    config = ShareConfig(enforcement=demanded)
    asked = claim(allocated_share("gpu-0-share", share_id="s-1", config=config))
    wanting = replace(asked, pods=("pod",))
    devices = {"gpu-0-share": share(0)}
    if not missing:
        assert wanted([wanting], [wanting], devices)
    else:
        with pytest.raises(ClaimError) as caught:
            wanted([wanting], [wanting], devices)
        failure = caught.value.failure
        assert isinstance(failure, EnforcementMissing)
        assert tuple(lack.level for lack in failure.lacking) == missing


def test_a_repair_does_not_fail_because_carina_sharing_is_away() -> None:
    """It does not know the pods: no container is about to start."""
    config = ShareConfig(enforcement=Enforcement(memory=("mps", "watchdog"), cores=("mps",)))
    prepared = claim(allocated_share("gpu-0-share", share_id="s-1", config=config))
    assert wanted([prepared], [prepared], {"gpu-0-share": share(0)})


def test_admin_access_to_shares_needs_no_enforcement() -> None:
    demanding = ShareConfig(enforcement=Enforcement(memory=("kernel",)))
    seen = replace(allocated("gpu-0-share", admin_access=True), config=demanding)
    assert wanted([claim(seen)], [claim(seen)], {"gpu-0-share": share(0)})


def test_a_share_recorded_by_a_version_without_shares_demands_nothing() -> None:
    recorded = replace(allocated_share("gpu-0-share", share_id="s-1"), config=GpuConfig())
    assert wanted([claim(recorded)], [claim(recorded)], {"gpu-0-share": share(0)})


def test_admin_access_to_a_share_takes_nothing_from_the_others() -> None:
    held = claim(allocated_share("gpu-0-share", share_id="a", memory="45Gi", cores=100))
    seen = claim(
        replace(allocated_share("gpu-0-share", share_id="b"), admin_access=True), uid="seen"
    )
    assert wanted([seen, held], [seen, held], {"gpu-0-share": share(0)})


def test_time_slices_can_be_set_from_compute_capability_7() -> None:
    config = ShareConfig(timeSlicing=TimeSlicingConfig(interval="Short"))
    sliced = claim(replace(allocated_share("gpu-0-share", share_id="a"), config=config))

    volta, pascal = (
        {"gpu-0-share": share(0, cuda_compute_capability=capability, product_name="Tesla")}
        for capability in ((7, 0), (6, 2))
    )
    assert (
        TimeSlice(volta["gpu-0-share"].gpu, "Short") in wanted([sliced], [sliced], volta).values()
    )
    with pytest.raises(ClaimError) as caught:
        wanted([sliced], [sliced], pascal)
    assert caught.value.failure == TimeSlicingMissing(sliced, "gpu-0-share", "Short", "Tesla")


def test_making_again_changes_nothing(node: Node) -> None:
    node.make(claim())
    before = node.spec.stat()
    node.make(claim())
    after = node.spec.stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


@pytest.mark.parametrize("damage", [Path.unlink, lambda path: path.write_text("{")])
def test_making_again_brings_back_what_was_lost(
    node: Node, damage: Callable[[Path], object]
) -> None:
    node.make(claim())
    before = node.spec.read_bytes()
    damage(node.spec)
    node.make(claim())
    assert node.spec.read_bytes() == before


def test_making_again_after_a_driver_update_gives_the_new_drivers_files(node: Node) -> None:
    node.make(claim())
    node.simulated.replace_driver("999.1.2")
    node.has("gpu-0", driver_version="999.1.2")
    node.make(claim())
    spec = node.spec.read_text()
    assert "libcuda.so.999.1.2" in spec
    assert node.version not in spec


def test_a_spec_names_its_claim(node: Node) -> None:
    node.make(claim())
    assert node.preparer.owners() == (ClaimReference(UID, "default", "train"),)


@pytest.mark.parametrize(
    "content", ["{", '{"containerEdits": {"env": ["CARINA_CLAIM_1234=default/other"]}}']
)
def test_a_damaged_spec_names_no_claim_and_is_a_leftover(node: Node, content: str) -> None:
    node.make(claim())
    node.spec.write_text(content)
    assert node.preparer.owners() == ()
    (leftover,) = node.preparer.leftovers(())
    assert leftover == Leftover("CDI spec", UID, "")
    node.preparer.remove(leftover)
    assert node.preparer.leftovers(()) == ()


def test_what_a_killed_write_left_is_a_leftover(node: Node) -> None:
    node.folder.mkdir()
    node.spec.with_name(f"{node.spec.name}.new").write_text("{")
    (leftover,) = node.preparer.leftovers(())
    node.preparer.remove(leftover)
    assert list(node.folder.iterdir()) == []


def test_a_folder_in_the_place_of_a_spec_is_named_and_stops_no_other(node: Node) -> None:
    node.make(claim())
    strange = node.folder / f"{DRIVER}-claim_strange.json"
    strange.mkdir()
    assert node.preparer.owners() == (ClaimReference(UID, "default", "train"),)
    (leftover,) = node.preparer.leftovers((claim(),))
    with pytest.raises(ClaimError) as caught:
        node.preparer.remove(leftover)
    assert isinstance(caught.value.failure, NodeResourceFailed)
    assert caught.value.failure.retriable
    assert f"strange in {node.folder} cannot be removed" in str(caught.value)


def test_specs_that_cannot_be_listed_are_said_to_be_so(node: Node) -> None:
    node.folder.write_text("a file in the folder's place")
    with pytest.raises(ClaimError) as caught:
        node.preparer.leftovers(())
    assert isinstance(caught.value.failure, NodeResourceFailed)
    assert caught.value.failure.retriable
    assert f"{node.folder} cannot be listed" in str(caught.value)


def test_removing_leaves_nothing(node: Node) -> None:
    node.make(claim())
    node.remove(claim())
    node.remove(claim())
    assert list(node.folder.iterdir()) == []


def test_what_was_made_for_a_device_that_has_vanished_can_be_removed(node: Node) -> None:
    node.make(claim())
    node.devices.clear()
    node.remove(claim())
    assert list(node.folder.iterdir()) == []


def test_missing_device_nodes_are_made(node: Node) -> None:
    path = node.simulated.root / "dev/nvidia-uvm-tools"
    path.unlink()
    node.make(claim())
    assert path.is_char_device()


def refusal(node: Node, wanted: NodeClaim) -> ClaimFailure:
    with pytest.raises(ClaimError) as caught:
        node.make(wanted)
    assert "default/train" in str(caught.value)
    assert not node.spec.exists()
    return caught.value.failure


def test_a_device_that_is_not_there_may_come(node: Node) -> None:
    wanted = claim(allocated("gpu-0"), allocated("gpu-7"))
    failure = refusal(node, wanted)
    assert failure == DeviceMissing(wanted, "gpu-7", ("gpu-0",))
    assert failure.retriable
    assert "device gpu-7" in str(failure)
    assert "(GPUs: gpu-0)" in str(failure)


@pytest.mark.parametrize(
    ("problem", "retriable", "words"),
    [(LOST, False, "fell off the bus"), (UNREADABLE, True, "does not respond")],
)
def test_a_gpu_that_does_not_answer_is_given_to_nobody(
    node: Node, problem: GpuProblem, retriable: bool, words: str
) -> None:
    node.has("gpu-0", problem)
    failure = refusal(node, claim())
    assert failure == DeviceUnhealthy(claim(), "gpu-0", gpu(0).uuid, problem)
    assert failure.retriable is retriable
    for word in (words, gpu(0).uuid, "reset the GPU"):
        assert word in str(failure)


@pytest.mark.parametrize("kind", FOUND_BY_DRIVER, ids=lambda kind: kind.state)
def test_a_gpu_with_a_problem_is_given_to_nobody_and_serves_who_has_it(
    node: Node, kind: type[FoundByDriver]
) -> None:
    node.has("gpu-0", kind(DriverVerdict("reason", "has a problem"), NOTICED))
    node.make(claim())

    if kind is Degraded:
        refuse_unfit(claim(), node.devices)
        return
    with pytest.raises(ClaimError) as caught:
        refuse_unfit(claim(), node.devices)
    assert isinstance(caught.value.failure, DeviceUnhealthy)


def test_of_several_problems_the_worst_is_named(node: Node) -> None:
    node.has("gpu-0", UNREADABLE, LOST)
    failure = refusal(node, claim())
    assert isinstance(failure, DeviceUnhealthy)
    assert failure.problem == LOST


def test_without_the_drivers_libraries_a_claim_waits_for_them(node: Node) -> None:
    node.driver_library.unlink()
    failure = refusal(node, claim())
    assert isinstance(failure, NodeResourceFailed)
    assert failure.retriable
    assert "libcuda.so" in str(failure)


def test_without_the_drivers_version_its_libraries_are_not_guessed(node: Node) -> None:
    node.has("gpu-0", driver_version=None)
    assert refusal(node, claim()) == DriverUnknown(claim())


def test_a_spec_that_cannot_be_written_fails_the_claim(node: Node) -> None:
    node.folder.write_text("a file in the folder's place")
    failure = refusal(node, claim())
    assert isinstance(failure, NodeResourceFailed)
    assert failure.retriable
    assert str(node.folder) in str(failure)


def test_a_name_that_cannot_be_in_a_spec_fails_the_claim_for_good(node: Node) -> None:
    failure = refusal(node, claim(allocated("gpu-0", "Not_A_Label")))
    assert isinstance(failure, NodeResourceFailed)
    assert "lowercase letters" in str(failure)
    assert not failure.retriable


def documents(file: Path) -> list[dict[str, Any]]:
    """The objects in a file with device metadata."""
    text, found = file.read_text().rstrip(), []
    while text:
        document, end = json.JSONDecoder().raw_decode(text)
        found.append(document)
        text = text[end:].lstrip()
    return found


def mounts(node: Node) -> list[dict[str, str]]:
    """The host's and the container's path of each mount that only some containers get."""
    devices = json.loads(node.spec.read_bytes())["devices"]
    return [
        {mount["hostPath"]: mount["containerPath"]}
        for device in devices
        for mount in device["containerEdits"].get("mounts", ())
    ]


def test_containers_get_no_metadata_unless_it_is_set(node: Node) -> None:
    node.make(claim())

    assert mounts(node) == []
    assert not node.metadata.exists()


def test_containers_get_the_metadata_of_their_requests(node: Node) -> None:
    node.device_metadata = True
    node.devices["gpu-0-share"] = share(0, driver_version=node.version)
    node.devices["gpu-0-monitor"] = monitor(0, driver_version=node.version)
    prepared = replace(
        claim(
            allocated_share("gpu-0-share", "train", share_id="s-1"),
            allocated("gpu-0-monitor", "watch", admin_access=True),
        ),
        pod_claim="gpu",
        subrequests={"train": "small"},
    )

    node.make(prepared)

    folder = "/var/run/kubernetes.io/dra-device-attributes/resourceclaimtemplates/gpu"
    files = {name: node.metadata / f"{UID}_{name}.json" for name in ("train", "watch")}
    assert mounts(node) == [
        {str(file): f"{folder}/{name}/{DRIVER}-metadata.json"} for name, file in files.items()
    ]
    newest, oldest = documents(files["train"])
    assert {**newest, "apiVersion": oldest["apiVersion"]} == oldest
    (request,) = newest["requests"]
    (device,) = request["devices"]
    assert request["name"] == "train/small"
    assert (device["name"], device["attributes"]["memoryMiB"]) == ("gpu-0-share", {"int": 30720})
    assert documents(files["watch"])[0]["requests"][0]["name"] == "watch"


def test_metadata_is_removed_with_its_claim(node: Node) -> None:
    node.device_metadata = True
    node.make(claim())
    node.make(claim(uid="other"))

    node.remove(claim())

    assert [file.name for file in node.metadata.iterdir()] == ["other_gpu.json"]


def test_metadata_is_removed_when_the_setting_is_switched_off(node: Node) -> None:
    node.device_metadata = True
    node.make(claim())
    node.device_metadata = False

    node.make(claim())

    assert list(node.metadata.iterdir()) == []
    assert mounts(node) == []


def test_metadata_that_no_claim_has_is_a_leftover(node: Node) -> None:
    node.device_metadata = True
    node.make(claim())

    leftover = Leftover("device metadata", UID, gpu="")
    assert leftover in node.preparer.leftovers(())
    node.preparer.remove(leftover)
    assert list(node.metadata.iterdir()) == []


def test_metadata_that_changes_gets_the_next_generation_and_else_stays(node: Node) -> None:
    node.device_metadata = True
    file = node.metadata / f"{UID}_gpu.json"
    generations = []
    for name in ("NVIDIA L40S", "NVIDIA L40S", "NVIDIA L40", "NVIDIA L40"):
        node.has("gpu-0", product_name=name)
        before = file.stat().st_ino if file.exists() else None
        node.make(claim())
        (written,) = {document["metadata"]["generation"] for document in documents(file)}
        generations.append((written, file.stat().st_ino != before))
    assert generations == [(1, True), (1, False), (2, True), (2, False)]


def test_damaged_metadata_is_written_again(node: Node) -> None:
    node.device_metadata = True
    node.make(claim())
    file = node.metadata / f"{UID}_gpu.json"
    content = file.read_bytes()
    file.write_bytes(content[:100])

    node.make(claim())

    assert file.read_bytes() == content


def test_a_name_that_is_no_part_of_a_path_is_refused_only_if_containers_get_metadata(
    node: Node,
) -> None:
    prepared = replace(claim(), pod_claim="../gpu")
    node.make(prepared)
    node.device_metadata = True

    with pytest.raises(ClaimError) as caught:
        node.make(prepared)

    assert isinstance(caught.value.failure, NodeResourceFailed)
    assert "'../gpu'" in str(caught.value.failure)
    assert "pod-claim-name" in str(caught.value.failure)


def test_metadata_that_cannot_be_written_is_said(node: Node) -> None:
    node.device_metadata = True
    node.metadata.write_text("no folder")

    with pytest.raises(ClaimError) as caught:
        node.make(claim())

    assert str(node.metadata) in str(caught.value.failure)
    assert "check the folder and its file system" in str(caught.value.failure)
