"""Killed with SIGKILL before every change of a limit or a file, the plugin leaves no limit behind.

And no container without one: a claim that is prepared has it. Beside the claim, its pod has another
share of the GPU. See tests/integration/mig/kills.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.nvml import uninstall
from tests.integration.memory_limits.limited import DRIVER, GIB, OTHER, POD, Limited
from tests.integration.mig.kills import kills
from tests.integration.mig.operations import REPAIR

BOTH = {"beside.gpu-0.json", "new.gpu-0.json"}


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Limited]:
    made = Limited.create(tmp_path, driver_version=DRIVER)
    made.start_pod(POD)
    made.start_pod(OTHER)
    made.look()
    made.reserve("beside", POD)
    made.prepare("beside")
    made.reserve("new", POD)
    yield made
    uninstall()


def assert_has(node: Limited, *claims: str) -> None:
    assert node.limits() == {POD: len(claims) * GIB}
    assert node.records() == {f"{claim}.gpu-0.json" for claim in claims}
    assert node.specs() == node.claims_recorded().keys() == set(claims)
    assert all(node.level(claim) == "kernel" for claim in claims)


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_prepare(node: Limited, repairing: bool) -> None:
    def reset() -> None:
        node.unprepare("new")
        assert_has(node, "beside")

    for _ in kills(node, ("prepare", "new"), reset):
        spec_has_limit = "new" not in node.specs() or node.limits() == {POD: 2 * GIB}
        assert spec_has_limit
        if repairing:
            node.repair()
        node.prepare("new")
        assert_has(node, "beside", "new")


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_unprepare(node: Limited, repairing: bool) -> None:
    for _ in kills(node, ("unprepare", "new"), lambda: (node.prepare("new"), None)[1]):
        if repairing:
            # The pod of a claim that is unprepared has no container any more.
            node.repair()
            assert node.limits()[POD] in (GIB, 2 * GIB)
            assert node.level("beside") == "kernel"
        node.unprepare("new")
        assert_has(node, "beside")


def test_prepare_for_another_pod(node: Limited) -> None:
    def reset() -> None:
        node.reserve("new", POD)
        node.prepare("new")
        assert_has(node, "beside", "new")
        node.reserve("new", OTHER)

    for _ in kills(node, ("prepare", "new"), reset):
        node.prepare("new")
        assert node.limits() == {POD: GIB, OTHER: GIB}
        assert node.records() == BOTH


def test_repair_of_leftovers(node: Limited) -> None:
    checkpoint = (node.folder / "checkpoint.jsonl").read_bytes()

    def reset() -> None:
        node.prepare("new")
        (node.folder / "checkpoint.jsonl").write_bytes(checkpoint)

    for _ in kills(node, REPAIR, reset):
        node.repair()
        assert_has(node, "beside")
