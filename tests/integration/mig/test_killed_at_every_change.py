"""Killed with SIGKILL before every change of the GPU or of a file, the plugin loses nothing.

The changes are enumerated, not sampled: a child process carries out one call and ends itself before
its n-th change, for every n until the call ends by itself. The state after a change is the state
before the next, so these are all the states that a kill can leave.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.nvml import uninstall
from tests.integration.mig.agreement import Expected, TwoGpus, assert_agrees, leftover_files
from tests.integration.mig.kills import kills
from tests.integration.mig.operations import REPAIR
from tests.integration.mig.situations import PART, PARTS, SITUATIONS, WHOLE

ALONE, *_, BESIDE_BOTH = SITUATIONS


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoGpus]:
    yield TwoGpus.create(tmp_path)
    uninstall()


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_prepare_of_partitions(node: TwoGpus, repairing: bool) -> None:
    before = BESIDE_BOTH.begin(node)
    after = before.with_claim("new", *PARTS)
    node.allocations["new"] = PARTS

    def reset() -> None:
        node.unprepare("new")
        assert_agrees(node, before)

    for _ in kills(node, ("prepare", "new"), reset):
        if repairing:
            node.repair()
            assert_agrees(node, after if "new" in node.claims_recorded() else before)
        node.prepare("new")
        assert_agrees(node, after)
        assert leftover_files(node) == set()


def test_the_first_prepare_of_a_partition(node: TwoGpus) -> None:
    before = ALONE.begin(node)
    after = before.with_claim("new", PART)
    node.allocations["new"] = (PART,)
    caps = node.simulated.root / "dev/nvidia-caps"
    of_driver = {entry.name for entry in caps.iterdir()}

    def made() -> set[str]:
        return {entry.name for entry in caps.iterdir()} - of_driver

    def reset() -> None:
        node.unprepare("new")
        node.repair()
        assert_agrees(node, before)
        for name in made():
            (caps / name).unlink()
        if (node.folder / "mig").exists():
            (node.folder / "mig").rmdir()

    for _ in kills(node, ("prepare", "new"), reset):
        node.repair()
        node.repair()
        assert_agrees(node, after if "new" in node.claims_recorded() else before)
        node.prepare("new")
        assert_agrees(node, after)
        assert leftover_files(node) == set()
        assert len(made()) == len(["GPU instance", "compute instance"])


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_unprepare_of_partitions(node: TwoGpus, repairing: bool) -> None:
    before = BESIDE_BOTH.begin(node)
    node.allocations["new"] = PARTS

    for _ in kills(node, ("unprepare", "new"), lambda: (node.prepare("new"), None)[1]):
        if repairing:
            node.repair()
            recorded = "new" in node.claims_recorded()
            assert_agrees(node, before.with_claim("new", *PARTS) if recorded else before)
        node.unprepare("new")
        assert_agrees(node, before)
        assert leftover_files(node) == set()


def test_prepare_of_a_whole_gpu_after_a_partition(node: TwoGpus) -> None:
    ALONE.begin(node)
    whole = Expected({"whole": (WHOLE,)})
    node.allocations["whole"] = (WHOLE,)

    def reset() -> None:
        node.unprepare("whole")
        node.prepare("part", PART)
        node.unprepare("part")
        assert node.is_mig_on(0)

    for _ in kills(node, ("prepare", "whole"), reset):
        node.prepare("whole")
        assert_agrees(node, whole)
        assert leftover_files(node) == set()


def test_repair_of_leftovers(node: TwoGpus) -> None:
    before = ALONE.begin(node)
    checkpoint = (node.folder / "checkpoint.jsonl").read_bytes()

    def reset() -> None:
        node.prepare("new", PART)
        (node.folder / "checkpoint.jsonl").write_bytes(checkpoint)

    for _ in kills(node, REPAIR, reset):
        node.repair()
        node.repair()
        assert_agrees(node, before)
        assert leftover_files(node) == set()
