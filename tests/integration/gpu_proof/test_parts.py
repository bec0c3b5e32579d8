"""Each statement of the proof holds on a driver that does as documented, and fails on one that
does not.
"""

import pynvml
import pytest

from gpu_proof.finding import NotTried
from gpu_proof.parts import kernel_limits, mps, nvml, reserved, watchdog
from simulation.cuda import CudaFault
from simulation.nvml import SimulatedNode
from tests.integration.gpu_proof.conftest import PartRunner, results


def test_memory_and_processes_are_read_as_the_driver_has_them(run: PartRunner) -> None:
    outcomes = run(nvml.PART)
    assert results(outcomes, "disproven") == set()
    assert results(outcomes, "not tried") <= {"gpu-tests"}


def test_a_driver_that_miscounts_the_memory_of_processes_is_found(run: PartRunner) -> None:
    outcomes = run(nvml.PART, "memory is counted twice")
    assert results(outcomes, "disproven") == {"nvml-process-memory"}


def test_all_that_shares_promise_can_be_allocated(run: PartRunner) -> None:
    assert results(run(reserved.PART), "proven") == {"reserved-memory"}


def test_a_driver_that_reserves_more_than_it_says_is_found(run: PartRunner) -> None:
    outcomes = run(reserved.PART, "more is reserved than said")
    assert results(outcomes, "disproven") == {"reserved-memory"}


def test_the_memory_of_others_leaves_it_open_what_can_be_allocated(
    run: PartRunner, node: SimulatedNode
) -> None:
    node.run_process(0, 1, memory=2**30)
    assert results(run(reserved.PART), "not tried") == {"reserved-memory"}


def test_limits_of_cgroups_hold(run: PartRunner) -> None:
    outcomes = run(kernel_limits.PART)
    assert results(outcomes, "proven") == {
        statement.name for statement in kernel_limits.PART.statements
    }


@pytest.mark.parametrize(
    ("fault", "disproven"),
    [
        ("cuMemAlloc is not limited", {"kernel-cuMemAlloc", "kernel-together"}),
        ("cuMemCreate is not limited", {"kernel-cuMemCreate"}),
        ("cuMemAllocAsync is not limited", {"kernel-cuMemAllocAsync"}),
        ("each process has a limit of its own", {"kernel-together"}),
    ],
)
def test_a_limit_of_a_cgroup_that_does_not_hold_is_found(
    run: PartRunner, fault: CudaFault, disproven: set[str]
) -> None:
    assert results(run(kernel_limits.PART, fault), "disproven") == disproven


def test_limits_of_cgroups_are_not_tried_on_a_driver_without_them(
    run: PartRunner, node: SimulatedNode
) -> None:
    node.replace_driver("580.95.05")
    outcomes = run(kernel_limits.PART)
    reason = NotTried("driver 580.95.05 limits no cgroup; drivers do from r615 on")
    assert set(outcomes.values()) == {reason}


def test_limits_are_gone_afterwards(run: PartRunner, node: SimulatedNode) -> None:
    run(kernel_limits.PART)
    assert node.memory_limits(0) == {}


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels that take longer than what is around them."""
    monkeypatch.setattr(mps, "_KERNEL", 0.05)
    monkeypatch.setattr(mps, "_TURNS", 4.0)


def test_shares_with_mps_keep_within_their_limits(run: PartRunner, slow: None) -> None:
    outcomes = run(mps.PART)
    assert results(outcomes, "proven") == {statement.name for statement in mps.PART.statements}


@pytest.mark.parametrize(
    ("fault", "disproven"),
    [
        ("cuMemCreate is not limited", {"mps-cuMemCreate"}),
        ("no percentage holds", {"mps-multiprocessors", "mps-throughput"}),
        ("the environment raises limits", {"mps-environment"}),
        ("turns are of processes", {"mps-turns"}),
        ("a fault is everyone's", {"mps-fault"}),
    ],
)
def test_a_limit_of_mps_that_does_not_hold_is_found(
    run: PartRunner, slow: None, fault: CudaFault, disproven: set[str]
) -> None:
    assert results(run(mps.PART, fault), "disproven") == disproven


def test_mps_is_not_tried_on_an_old_driver(run: PartRunner, node: SimulatedNode) -> None:
    node.replace_driver("535.183.06")
    [outcome] = set(run(mps.PART).values())
    assert isinstance(outcome, NotTried)
    assert outcome.reason.startswith("MPS is used from driver 550 and compute capability 7.0 on")


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few trials, and less time for each."""
    monkeypatch.setattr(watchdog, "_TRIALS", 2)
    monkeypatch.setattr(watchdog, "_LEFT_ALONE", 1.0)
    monkeypatch.setattr(watchdog, "_LONGEST", 2.0)
    monkeypatch.setattr(watchdog, "_PATIENCE", 3.0)


def test_a_use_that_nobody_notices_is_found(
    run: PartRunner, few: None, node: SimulatedNode
) -> None:
    node.fail("nvmlDeviceGetComputeRunningProcesses_v3", pynvml.NVML_ERROR_UNKNOWN)
    assert "watchdog-notices" in results(run(watchdog.PART), "disproven")


def test_violators_are_ended(run: PartRunner, few: None) -> None:
    assert results(run(watchdog.PART), "proven") == {
        statement.name for statement in watchdog.PART.statements
    }


def test_violators_that_nobody_ends_are_found(
    run: PartRunner, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_TOO_MUCH_MIB", -1024)  # within the share
    assert results(run(watchdog.PART), "disproven") == {"watchdog-notices", "watchdog-ends"}


def test_violators_that_are_ended_late_are_found(
    run: PartRunner, few: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "_HALF", 0.0)
    assert results(run(watchdog.PART), "disproven") == {"watchdog-latency"}
