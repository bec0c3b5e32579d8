"""Killed with SIGKILL before every single change of the file system, the plugin loses nothing.

The changes are enumerated, not sampled: a child process carries out one call and ends itself before
its n-th change (`tests.file_changes`), for every n until the call ends by itself. The state after a
change is the state before the next, so these are all the states that a kill can leave. Then a fresh
process looks at what is left, as the plugin does when it starts.
"""

import json
import multiprocessing
import os
import shutil
import signal
import stat
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest

from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.kubelet_record import KubeletRecord
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.host import HostPaths
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.wanted import identities, wanted
from simulation.nvml import SimulatedNode
from tests.fakes.claims import PATIENT, FakeReporter
from tests.fakes.lifecycle import lifecycle
from tests.fakes.node_ports import node_ports
from tests.file_changes import before_each_change
from tests.samples.driver import installed_at
from tests.samples.gpus import whole

DRIVER, NODE = "gpu.carina.dev", "node-1"
UIDS = {"one": "11111111-aaaa", "two": "22222222-bbbb", "three": "33333333-cccc"}
_FAR = 500

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])

Operation = Literal["prepare", "unprepare", "repair"]


@dataclass(frozen=True)
class Node:
    """A node's folders, and the claims that its API server knows: each has a GPU of its own."""

    folder: Path

    @property
    def gpus(self) -> SimulatedNode:
        return SimulatedNode(self.folder / "node")

    def claims(self, reporter: FakeReporter | None = None) -> ClaimLifecycle:
        """What a plugin process that has just started works with."""
        gpus = self.gpus
        version = gpus.hardware.driver_version
        devices = {f"gpu-{minor}": whole(minor, driver_version=version) for minor in range(3)}
        cdi_specs = CdiSpecs(
            driver=DRIVER,
            driver_root=DriverRoot(installed_at(gpus.root)),
            host=HostPaths(gpus.root),
            host_device_root=gpus.root,
            directory=CdiDirectory(self.folder / "cdi", DRIVER),
        )
        return lifecycle(
            self.folder / "plugin",
            driver=DRIVER,
            pool=NODE,
            boot_id="boot-1",
            read_claim=_read_claim,
            read_kubelet_record=lambda: KubeletRecord(
                {uid: _reference(name) for name, uid in UIDS.items()}
            ),
            preparer=Preparer(
                node_ports(
                    cdi_specs,
                    root=gpus.root,
                    intents=self.folder / "plugin/mig",
                    boot_id="boot-1",
                    metadata=self.folder / "metadata",
                ),
                identities=identities,
                wanted=lambda claims, live: wanted(claims, live, devices, device_metadata=True),
                answer=lambda claim: prepared_devices(DRIVER, claim),
            ),
            reporter=reporter or FakeReporter(),
        )

    def recorded(self) -> Mapping[str, str]:
        """Devices that the checkpoint says are held, by the name of the claim."""
        checkpoint = CheckpointFile(self.folder / "plugin/checkpoint.jsonl").load()
        assert checkpoint is not None
        return {claim.name: claim.devices[0].device for claim in checkpoint.claims.values()}

    def specs(self) -> set[str]:
        """Names of the claims that have a whole CDI spec, and what it mounts of device metadata."""
        names = {uid: name for name, uid in UIDS.items()}
        found = set()
        for file in (self.folder / "cdi").glob("*.json"):
            (device,) = json.loads(file.read_text())["devices"]
            (mount,) = device["containerEdits"]["mounts"]
            metadata = Path(mount["hostPath"]).read_text()
            assert metadata.count('"kind": "DeviceMetadata"') == 2
            assert metadata.endswith("}\n")
            found.add(names[file.stem.partition("_")[2]])
        return found

    def metadata(self) -> set[str]:
        """Names of the claims that have device metadata, whole or not."""
        names = {uid: name for name, uid in UIDS.items()}
        files = (self.folder / "metadata").glob("*")
        return {names[file.name.partition("_")[0]] for file in files}

    def left(self) -> tuple[Mapping[str, str], dict[str, bytes]]:
        """What calls leave: what is recorded, and every file but for the lock and the record."""
        return self.recorded(), {
            str(file.relative_to(self.folder)): file.read_bytes()
            for folder in ("plugin", "cdi", "metadata")
            for file in sorted((self.folder / folder).rglob("*"))
            if file.is_file() and file.suffix != ".lock" and file.name != "checkpoint.jsonl"
        }

    def call(self, operation: Operation, name: str, kill_before: int = _FAR) -> bool:
        """Carries a call out in a child that ends itself before its n-th change; whether it ended.

        A call that is not killed has to succeed.
        """
        child = processes.Process(target=_child, args=(self.folder, operation, name, kill_before))
        child.start()
        child.join()
        assert child.exitcode in (0, -signal.SIGKILL), f"{operation} ended with {child.exitcode}"
        return child.exitcode == 0


def _read_claim(claim: ClaimReference, _: float) -> Mapping[str, Any]:
    minor = list(UIDS).index(claim.name)
    result = {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": f"gpu-{minor}"}
    return {
        "metadata": {"namespace": "default", "name": claim.name, "uid": UIDS[claim.name]},
        "spec": {"devices": {"requests": []}},
        "status": {"allocation": {"devices": {"results": [result]}}},
    }


def _reference(name: str) -> ClaimReference:
    return ClaimReference(UIDS[name], "default", name)


def _carry_out(claims: ClaimLifecycle, operation: Operation, name: str) -> None:
    match operation:
        case "prepare":
            claims.prepare(_reference(name), PATIENT)
        case "unprepare":
            claims.unprepare(_reference(name), PATIENT)
        case "repair":
            claims.repair()


def _child(folder: Path, operation: Operation, name: str, kill_before: int) -> None:
    claims = Node(folder).claims()
    remaining = kill_before

    def change() -> None:
        nonlocal remaining
        if remaining == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        remaining -= 1

    before_each_change([folder], change)
    _carry_out(claims, operation, name)


@pytest.fixture
def node(tmp_path: Path) -> Node:
    SimulatedNode.create(tmp_path / "node", "t4")
    (tmp_path / "plugin").mkdir()
    (tmp_path / "cdi").mkdir()
    return Node(tmp_path)


def _kills(node: Node, operation: Operation, name: str, reset: Callable[[], None]) -> Iterator[int]:
    """Kills the call before each of its changes, from the same state; gives how many there are."""
    for kill_before in range(_FAR):
        reset()
        ended = node.call(operation, name, kill_before)
        yield kill_before
        if ended:
            assert kill_before > 5, "the call changes so little that nothing was tried"
            return
    raise AssertionError("the call never ends")


def _skip_without_device_nodes(path: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("needs the right to make device nodes (CAP_MKNOD)")
    path.unlink()


def _check_repaired(node: Node) -> None:
    """What a started plugin makes of what it finds: recorded is prepared, and nothing else is."""
    node.specs()  # whole as they are: container runtimes read them at any time
    reporter = FakeReporter()
    node.claims(reporter).repair()
    assert reporter == FakeReporter(counts=[len(node.recorded())], failed_repairs=[()])
    assert node.specs() == node.metadata() == set(node.recorded())
    held = list(node.recorded().values())
    assert len(held) == len(set(held))


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_prepare_killed_at_every_change(node: Node, repairing: bool) -> None:
    node.claims().prepare(_reference("one"), PATIENT)
    before = node.left()

    def reset() -> None:
        node.claims().unprepare(_reference("two"), PATIENT)
        assert node.left() == before

    for _ in _kills(node, "prepare", "two", reset):
        if repairing:
            _check_repaired(node)
        assert "one" in node.specs()
        node.claims().prepare(_reference("two"), PATIENT)
        assert node.recorded() == {"one": "gpu-0", "two": "gpu-1"}
        assert node.specs() == {"one", "two"}
        assert not [name for name in node.left()[1] if name.endswith(".new")]


def test_prepare_that_makes_device_nodes_killed_at_every_change(node: Node) -> None:
    dev = node.gpus.root / "dev"
    made = ("nvidia0", "nvidiactl")
    _skip_without_device_nodes(dev / "probe")
    before = sorted(entry.name for entry in dev.iterdir())

    def reset() -> None:
        node.claims().unprepare(_reference("one"), PATIENT)
        for name in made:
            (dev / name).unlink()

    for _ in _kills(node, "prepare", "one", reset):
        _check_repaired(node)
        node.claims().prepare(_reference("one"), PATIENT)
        assert node.specs() == {"one"}
        assert sorted(entry.name for entry in dev.iterdir()) == before
        modes = [(dev / name).stat().st_mode for name in made]
        assert modes == [stat.S_IFCHR | 0o666] * 2


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_unprepare_killed_at_every_change(node: Node, repairing: bool) -> None:
    node.claims().prepare(_reference("one"), PATIENT)
    without = node.left()

    def reset() -> None:
        node.claims().prepare(_reference("two"), PATIENT)

    for _ in _kills(node, "unprepare", "two", reset):
        if repairing:
            _check_repaired(node)
        assert "one" in node.specs()
        node.claims().unprepare(_reference("two"), PATIENT)
        assert node.left() == without


def test_prepare_after_a_cut_off_change_killed_at_every_change(node: Node) -> None:
    node.claims().prepare(_reference("one"), PATIENT)

    def reset() -> None:
        node.claims().unprepare(_reference("two"), PATIENT)
        with (node.folder / "plugin/checkpoint.jsonl").open("ab") as file:
            file.write(b'{"gone":"')

    for _ in _kills(node, "prepare", "two", reset):
        _check_repaired(node)
        node.claims().prepare(_reference("two"), PATIENT)
        assert node.recorded() == {"one": "gpu-0", "two": "gpu-1"}
        assert node.specs() == {"one", "two"}


def test_first_prepare_of_a_new_node_killed_at_every_change(node: Node) -> None:
    def reset() -> None:
        for file in [*(node.folder / "plugin").iterdir(), *(node.folder / "cdi").iterdir()]:
            file.unlink()
        shutil.rmtree(node.folder / "metadata", ignore_errors=True)

    for _ in _kills(node, "prepare", "one", reset):
        _check_repaired(node)
        node.claims().prepare(_reference("one"), PATIENT)
        assert node.recorded() == {"one": "gpu-0"}
        assert node.specs() == {"one"}


def test_rebuilding_an_unreadable_checkpoint_killed_at_every_change(node: Node) -> None:
    for name in ("one", "two"):
        node.claims().prepare(_reference(name), PATIENT)
    checkpoint = node.folder / "plugin/checkpoint.jsonl"

    def reset() -> None:
        for file in (node.folder / "plugin").iterdir():
            file.unlink()
        checkpoint.write_bytes(b"\0" * 100)

    for _ in _kills(node, "repair", "", reset):
        node.claims().repair()
        assert node.recorded() == {"one": "gpu-0", "two": "gpu-1"}
        assert node.specs() == {"one", "two"}
        kept = list((node.folder / "plugin").glob("checkpoint.jsonl.unreadable-*"))
        assert [file.read_bytes() for file in kept] == [b"\0" * 100]
