"""Killed with SIGKILL before every change of a file, the plugin leaves no daemon behind.

And no container without one: a claim that has a CDI spec has a daemon that was ready. See
tests/integration/mig/kills.py.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from simulation.nvml import uninstall
from tests.integration.mig.kills import kills
from tests.integration.mig.operations import REPAIR
from tests.integration.mps.supervised import DRIVER, Supervised


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Supervised]:
    made = Supervised.create(tmp_path, driver_version=DRIVER)
    made.look()
    made.reserve("beside")
    made.prepare("beside")
    made.reserve("new")
    yield made
    uninstall()


def assert_has(node: Supervised, *claims: str) -> None:
    assert node.daemons() == node.records().claims() == set(claims)
    assert node.specs() == node.claims_recorded().keys() == set(claims)
    assert all("CUDA_MPS_PIPE_DIRECTORY" in node.variables(claim) for claim in claims)


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_prepare(node: Supervised, repairing: bool) -> None:
    def reset() -> None:
        node.unprepare("new")
        assert_has(node, "beside")

    for _ in kills(node, ("prepare", "new"), reset):
        record = node.daemon_record("new")
        was_ready = record is not None and record.ready
        assert was_ready or "new" not in node.specs()
        if repairing:
            node.repair()
        node.prepare("new")
        assert_has(node, "beside", "new")


@pytest.mark.parametrize("repairing", [True, False], ids=["repaired", "called again at once"])
def test_unprepare(node: Supervised, repairing: bool) -> None:
    for _ in kills(node, ("unprepare", "new"), lambda: (node.prepare("new"), None)[1]):
        if repairing:
            node.repair()
        node.unprepare("new")
        assert_has(node, "beside")


def test_repair_of_leftovers(node: Supervised) -> None:
    checkpoint = (node.folder / "checkpoint.jsonl").read_bytes()

    def reset() -> None:
        node.prepare("new")
        (node.folder / "checkpoint.jsonl").write_bytes(checkpoint)

    for _ in kills(node, REPAIR, reset):
        node.repair()
        assert_has(node, "beside")
