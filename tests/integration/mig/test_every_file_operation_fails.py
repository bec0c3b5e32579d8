"""Whichever operation on a file fails, nothing is leaked, doubled or left, and the next call works.

The operations are enumerated, not sampled: each fails once, as on a disk that is full, broken or
read-only for a moment.
"""

import errno
import multiprocessing
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kubelet_plugin.claims.failure import ClaimError
from simulation.nvml import install, uninstall
from tests.file_changes import before_each_change
from tests.integration.mig.agreement import Expected, TwoGpus, assert_agrees, leftover_files
from tests.integration.mig.operations import REPAIR, Operation, carry_out
from tests.integration.mig.situations import PART, PARTS, SITUATIONS, WHOLE

_FAR = 500
_ERRORS = (errno.ENOSPC, errno.EIO, errno.EROFS)
_SUCCEEDED, _FAILED, _NOTHING_FAILED = 0, 10, 20
ALONE, *_, BESIDE_BOTH = SITUATIONS

processes = multiprocessing.get_context("forkserver")
processes.set_forkserver_preload([__name__])


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoGpus]:
    yield TwoGpus.create(tmp_path)
    uninstall()


def _child(node: TwoGpus, operation: Operation, failing: int) -> None:
    remaining = failing

    def change() -> None:
        nonlocal remaining
        remaining -= 1
        if remaining == -1:
            code = _ERRORS[failing % len(_ERRORS)]
            raise OSError(code, os.strerror(code))

    install(node.simulated.directory)
    before_each_change([node.folder], change)
    try:
        carry_out(node, operation)
    except ClaimError:
        raise SystemExit(_FAILED) from None
    raise SystemExit(_NOTHING_FAILED if remaining >= 0 else _SUCCEEDED)


def _failures(node: TwoGpus, operation: Operation, reset: Callable[[], None]) -> Iterator[bool]:
    """Has each operation on a file fail, from the same state; gives whether the call succeeded."""
    for failing in range(_FAR):
        reset()
        child = processes.Process(target=_child, args=(node, operation, failing))
        child.start()
        child.join()
        assert child.exitcode in (_SUCCEEDED, _FAILED, _NOTHING_FAILED), child.exitcode
        yield child.exitcode != _FAILED
        if child.exitcode == _NOTHING_FAILED:
            assert failing > 10, "so few operations that nothing was tried"
            return
    raise AssertionError("the call never ends")


def test_prepare_of_partitions(node: TwoGpus) -> None:
    before = BESIDE_BOTH.begin(node)
    after = before.with_claim("new", *PARTS)
    node.allocations["new"] = PARTS

    def reset() -> None:
        node.unprepare("new")
        assert_agrees(node, before)

    for succeeded in _failures(node, ("prepare", "new"), reset):
        if succeeded:
            assert_agrees(node, after)
        node.repair()
        assert_agrees(node, after if "new" in node.claims_recorded() else before)
        node.prepare("new")
        assert_agrees(node, after)
        assert leftover_files(node) == set()


def test_unprepare_of_partitions(node: TwoGpus) -> None:
    before = BESIDE_BOTH.begin(node)
    after = before.with_claim("new", *PARTS)
    node.allocations["new"] = PARTS

    def reset() -> None:
        node.prepare("new")

    for succeeded in _failures(node, ("unprepare", "new"), reset):
        if succeeded:
            assert_agrees(node, before)
        node.repair()
        assert_agrees(node, after if "new" in node.claims_recorded() else before)
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

    for succeeded in _failures(node, ("prepare", "whole"), reset):
        if succeeded:
            assert_agrees(node, whole)
        node.prepare("whole")
        assert_agrees(node, whole)
        assert leftover_files(node) == set()


def test_repair_of_leftovers(node: TwoGpus) -> None:
    before = ALONE.begin(node)
    checkpoint = (node.folder / "checkpoint.jsonl").read_bytes()

    def reset() -> None:
        node.prepare("new", PART)
        (node.folder / "checkpoint.jsonl").write_bytes(checkpoint)

    for succeeded in _failures(node, REPAIR, reset):
        assert succeeded
        node.repair()
        node.repair()
        assert_agrees(node, before)
        assert leftover_files(node) == set()
