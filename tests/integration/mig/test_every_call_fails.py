"""Whichever call of NVML fails, nothing is leaked, doubled or left, and the next call works.

The calls are enumerated, not sampled: each call of an operation fails once, with one error after
another in turn. CARINA_TEST_LENGTH=9 tries each error at each call.
"""

from collections.abc import Iterator
from pathlib import Path

import pynvml
import pytest

from kubelet_plugin.claims.failure import ClaimError
from simulation.nvml import uninstall
from tests.fakes.nvml_calls import nvml_calls
from tests.integration.mig.agreement import Expected, TwoGpus, assert_agrees, leftover_files
from tests.integration.mig.operations import REPAIR, Operation, carry_out
from tests.integration.mig.situations import (
    OF_ADMIN,
    PART,
    PARTS,
    SITUATIONS,
    WHOLE,
    Situation,
)
from tests.length import scaled

ERRORS = (
    pynvml.NVML_ERROR_UNKNOWN,
    pynvml.NVML_ERROR_NOT_FOUND,
    pynvml.NVML_ERROR_IN_USE,
    pynvml.NVML_ERROR_NOT_SUPPORTED,
    pynvml.NVML_ERROR_INSUFFICIENT_RESOURCES,
    pynvml.NVML_ERROR_INVALID_ARGUMENT,
    pynvml.NVML_ERROR_GPU_IS_LOST,
    pynvml.NVML_ERROR_GPU_NOT_FOUND,
    pynvml.NVML_ERROR_DRIVER_NOT_LOADED,
)

ALONE, *_, BESIDE_BOTH = SITUATIONS
_FEWEST = 10
"""Calls of the smallest operation here."""

each_situation = pytest.mark.parametrize("situation", [ALONE, BESIDE_BOTH], ids=str)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[TwoGpus]:
    yield TwoGpus.create(tmp_path)
    uninstall()


def failures(calls: int) -> Iterator[tuple[int, int, bool]]:
    """The calls, the errors with which they fail, and whether the plugin repairs afterwards."""
    for number in range(calls):
        for turn in range(number, number + min(scaled(1), len(ERRORS))):
            yield number, ERRORS[turn % len(ERRORS)], number // len(ERRORS) % 2 == 0


def count(node: TwoGpus, operation: Operation) -> int:
    with nvml_calls(node.simulated.directory) as calls:
        carry_out(node, operation)
    return len(calls.symbols)


def carry_out_failing(node: TwoGpus, operation: Operation, number: int, code: int) -> bool:
    """Carries the operation out with one call failing; returns whether it succeeded."""

    def at(call: int, _symbol: str) -> int | None:
        return code if call == number else None

    with nvml_calls(node.simulated.directory, at):
        try:
            carry_out(node, operation)
        except ClaimError:
            return False
    return True


@pytest.mark.parametrize(
    ("situation", "devices"), [(ALONE, PARTS), (BESIDE_BOTH, (PART,))], ids=str
)
def test_prepare_of_partitions(
    node: TwoGpus, situation: Situation, devices: tuple[str, ...]
) -> None:
    before = situation.begin(node)
    after = before.with_claim("new", *devices)
    node.allocations["new"] = devices
    calls = count(node, ("prepare", "new"))
    assert calls > _FEWEST

    for number, code, repairing in failures(calls):
        node.unprepare("new")
        node.repair()
        assert_agrees(node, before)
        if carry_out_failing(node, ("prepare", "new"), number, code):
            assert_agrees(node, after)
        if repairing:
            node.repair()
            node.repair()
            assert_agrees(node, after if "new" in node.claims_recorded() else before)
        node.prepare("new")
        assert_agrees(node, after)
        assert leftover_files(node) == set()


@each_situation
def test_unprepare_of_partitions(node: TwoGpus, situation: Situation) -> None:
    before = situation.begin(node)
    after = before.with_claim("new", *PARTS)
    node.prepare("new", *PARTS)
    calls = count(node, ("unprepare", "new"))
    assert calls > _FEWEST

    for number, code, repairing in failures(calls):
        node.prepare("new")
        carry_out_failing(node, ("unprepare", "new"), number, code)
        if repairing:
            node.repair()
            node.repair()
            assert_agrees(node, after if "new" in node.claims_recorded() else before)
        node.unprepare("new")
        node.repair()  # of an instance that was left behind
        node.repair()  # of the mode, which it needed
        assert_agrees(node, before)
        assert leftover_files(node) == set()


def test_prepare_of_a_whole_gpu_after_a_partition(node: TwoGpus) -> None:
    ALONE.begin(node)
    whole = Expected({"whole": (WHOLE,)})
    node.allocations["whole"] = (WHOLE,)

    def partition_ended() -> None:
        node.prepare("part", PART)
        node.unprepare("part")
        assert node.is_mig_on(0)

    partition_ended()
    calls = count(node, ("prepare", "whole"))
    assert calls > _FEWEST
    for number, code, repairing in failures(calls):
        node.unprepare("whole")
        partition_ended()
        if carry_out_failing(node, ("prepare", "whole"), number, code):
            assert_agrees(node, whole)
        if repairing:
            node.repair()
            node.repair()
            assert_agrees(node, whole if "whole" in node.claims_recorded() else Expected())
        node.prepare("whole")
        assert_agrees(node, whole)
        assert leftover_files(node) == set()


@each_situation
def test_repair_of_leftovers(node: TwoGpus, situation: Situation) -> None:
    before = situation.begin(node)
    checkpoint = (node.folder / "checkpoint.jsonl").read_bytes()

    def leave() -> None:
        node.prepare("new", *PARTS)
        (node.folder / "checkpoint.jsonl").write_bytes(checkpoint)

    leave()
    calls = count(node, REPAIR)
    assert calls > _FEWEST
    for number, code, _ in failures(calls):
        leave()
        carry_out_failing(node, REPAIR, number, code)
        node.repair()
        node.repair()
        assert_agrees(node, before)
        assert leftover_files(node) == set()


def test_repair_of_live_claims_after_a_reboot(node: TwoGpus) -> None:
    after = ALONE.begin(node).with_claim("new", *PARTS)
    node.prepare("new", *PARTS)
    node.simulated.reboot()
    calls = count(node, REPAIR)
    assert calls > _FEWEST

    for number, code, _ in failures(calls):
        node.simulated.reboot()
        carry_out_failing(node, REPAIR, number, code)
        node.repair()
        assert_agrees(node, after)


def test_prepare_of_an_administrators_partition(node: TwoGpus) -> None:
    before = BESIDE_BOTH.begin(node)
    after = before.with_claim("new", OF_ADMIN)
    node.allocations["new"] = (OF_ADMIN,)
    calls = count(node, ("prepare", "new"))
    assert calls > _FEWEST

    for number, code, repairing in failures(calls):
        node.unprepare("new")
        assert_agrees(node, before)
        if carry_out_failing(node, ("prepare", "new"), number, code):
            assert_agrees(node, after)
        if repairing:
            node.repair()
        node.prepare("new")
        assert_agrees(node, after)


def test_a_gpu_that_is_lost_at_any_call_of_unprepare_comes_back_empty(node: TwoGpus) -> None:
    before = ALONE.begin(node)
    node.prepare("new", *PARTS)
    calls = count(node, ("unprepare", "new"))

    for lost_at in range(calls):
        node.prepare("new")

        def at(call: int, _symbol: str, lost_at: int = lost_at) -> None:
            if call == lost_at:
                node.simulated.lose_gpu(0)

        with nvml_calls(node.simulated.directory, at):
            node.unprepare("new")
        node.repair()
        assert node.claims_recorded() == {}
        node.simulated.reset_gpu(0)
        node.repair()
        node.repair()
        assert_agrees(node, before)


def test_a_gpu_that_is_lost_at_any_call_of_prepare_comes_back(node: TwoGpus) -> None:
    before = ALONE.begin(node)
    node.prepare("new", PART)
    node.unprepare("new")
    node.repair()
    calls = count(node, ("prepare", "new"))

    for lost_at in range(calls):
        node.unprepare("new")
        node.repair()
        assert_agrees(node, before)

        def at(call: int, _symbol: str, lost_at: int = lost_at) -> None:
            if call == lost_at:
                node.simulated.lose_gpu(0)

        with nvml_calls(node.simulated.directory, at), pytest.raises(ClaimError):
            node.prepare("new")
        node.repair()
        node.simulated.reset_gpu(0)
        node.repair()
        node.repair()
        assert_agrees(node, before)
        node.prepare("new")
        assert_agrees(node, before.with_claim("new", PART))
