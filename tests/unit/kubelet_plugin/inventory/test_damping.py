"""When a GPU that failed counts as one that answers."""

from collections.abc import Iterable
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.inventory.damping import Damping, Troubles, damped
from kubelet_plugin.inventory.health import (
    HEALTHY,
    Degraded,
    DriverVerdict,
    GpuProblem,
    GpuProblems,
    GpuUnreadable,
    NvmlHang,
)
from kubelet_plugin.inventory.inventory import DriverMissing, DriverReady
from tests.samples.gpus import LOST, NOTICED, UNREADABLE, observed

DAMPING = Damping(first=60.0, longest=1800.0)
SLOW = Degraded(DriverVerdict("hw-thermal-slowdown", "is slowed down"), NOTICED)
HUNG = GpuUnreadable(NvmlHang(30.0), NOTICED)


class Gpu:
    """GPU 0 beside one that is well, as reads at given times find it."""

    def __init__(self) -> None:
        self.troubles: Troubles = {}

    def read(self, now: float, *problems: GpuProblem) -> GpuProblems:
        """Gives what counts after a read."""
        found = DriverReady((observed(0, *problems), observed(1)))
        seen, self.troubles = damped(found, self.troubles, now, DAMPING)
        assert isinstance(seen, DriverReady)
        assert seen.gpus[1] == observed(1)
        return seen.gpus[0].state.problems

    def reads(self, times: Iterable[float], *problems: GpuProblem) -> list[bool]:
        """Gives at which reads it counts as one that has a problem."""
        return [bool(self.read(now, *problems)) for now in times]


def test_a_problem_counts_at_once() -> None:
    gpu = Gpu()

    assert gpu.read(0) == HEALTHY
    assert gpu.read(5, UNREADABLE) == {UNREADABLE}


def test_it_is_over_when_the_gpu_has_answered_for_a_minute() -> None:
    gpu = Gpu()
    gpu.read(0, UNREADABLE)

    assert gpu.read(5) == {UNREADABLE}
    assert gpu.reads([10, 64.9, 65]) == [True, True, False]


def test_a_relapse_meanwhile_starts_the_minute_again() -> None:
    gpu = Gpu()
    gpu.read(0, UNREADABLE)
    gpu.read(5)
    gpu.read(60, UNREADABLE)

    assert gpu.reads([65, 124, 125]) == [True, True, False]


def test_each_relapse_after_that_takes_twice_as_long_up_to_half_an_hour() -> None:
    gpu, now, waits = Gpu(), 0.0, []
    for _ in range(8):
        gpu.read(now, UNREADABLE)
        begun = now
        while gpu.read(now):
            now += 5
        waits.append(now - begun)

    assert waits == [60, 120, 240, 480, 960, 1800, 1800, 1800]


def test_faults_are_forgotten_after_half_an_hour_in_service() -> None:
    gpu = Gpu()
    gpu.read(0, UNREADABLE)
    assert gpu.reads([0, 60, 1859, 1860]) == [True, False, False, False]
    assert gpu.troubles == {}

    gpu.read(1900, UNREADABLE)
    assert gpu.reads([1900, 1960]) == [True, False]


def test_a_first_hang_is_over_when_the_call_returns_and_a_second_is_not() -> None:
    gpu = Gpu()
    gpu.read(0, HUNG)
    assert gpu.read(5) == HEALTHY

    gpu.read(40, HUNG)
    assert gpu.reads([45, 164, 165]) == [True, True, False]


def test_lost_and_unreadable_are_one_problem() -> None:
    gpu = Gpu()
    gpu.read(0, LOST)

    assert {gpu.read(now, UNREADABLE) for now in range(5, 120, 5)} == {
        frozenset({LOST, UNREADABLE})
    }


def test_a_hang_of_a_gpu_that_is_lost_meanwhile_is_not_over_at_once() -> None:
    gpu = Gpu()
    gpu.read(0, HUNG)
    gpu.read(5, LOST)

    assert gpu.reads([10, 69, 70]) == [True, True, False]


def test_what_is_worse_stays_until_it_is_over_and_every_problem_keeps_its_time() -> None:
    gpu = Gpu()
    gpu.read(0, LOST)
    later = GpuUnreadable(UNREADABLE.failure, NOTICED + timedelta(seconds=5))

    assert gpu.read(5, later) == {LOST, later}
    assert gpu.read(10, UNREADABLE) == {LOST, later}
    assert gpu.read(15) == {LOST, later}
    assert gpu.read(75) == HEALTHY


def test_a_gpu_that_is_unplugged_is_forgotten_after_a_while() -> None:
    gpu = Gpu()
    gpu.read(0, UNREADABLE)
    troubles, now = gpu.troubles, 0.0

    while troubles and now < 2 * DAMPING.longest:
        now += 5
        _, troubles = damped(DriverReady((observed(1),)), troubles, now, DAMPING)

    assert now == DAMPING.first + DAMPING.longest + 5


def test_a_driver_that_is_missing_changes_nothing() -> None:
    gpu = Gpu()
    gpu.read(0, UNREADABLE)
    missing = DriverMissing("not loaded")

    assert damped(missing, gpu.troubles, 5, DAMPING) == (missing, gpu.troubles)


@pytest.mark.parametrize("period", [2, 3, 7, 13, 14, 30, 100])
def test_a_gpu_that_fails_now_and_then_is_mostly_out_of_service(period: int) -> None:
    gpu = Gpu()
    out = [
        bool(gpu.read(5.0 * look, *([UNREADABLE] if look % period == 0 else ())))
        for look in range(12 * 60 * 6)
    ]

    assert sum(out) > len(out) / 2


def test_a_problem_is_over_while_another_one_lasts() -> None:
    gpu = Gpu()
    gpu.read(0, UNREADABLE, SLOW)
    assert gpu.read(5, SLOW) == {UNREADABLE, SLOW}
    assert gpu.read(65, SLOW) == {SLOW}


def test_a_clock_that_is_set_back_makes_a_wait_longer_and_not_endless() -> None:
    gpu = Gpu()
    gpu.read(1_000_000, UNREADABLE)
    gpu.read(1_000_005)

    assert gpu.reads([0, 59, 60]) == [True, True, False]


@given(st.lists(st.sampled_from([None, UNREADABLE, LOST, HUNG]), max_size=200))
def test_a_gpu_changes_twice_a_minute_at_most_unless_the_driver_hung(
    reads: list[GpuProblem | None],
) -> None:
    gpu, changes, before = Gpu(), list[float](), False
    for look, problem in enumerate(reads):
        bad = bool(gpu.read(5.0 * look, *([problem] if problem else ())))
        assert bad or problem is None  # what fails is never in service
        if bad != before:
            changes.append(5.0 * look)
        before = bad

    hung = HUNG in reads  # a first hang, which takes half a minute to be noticed, is over at once
    for index, begun in enumerate(changes):
        assert sum(1 for at in changes[index:] if at < begun + 60) <= (3 if hung else 2)


def test_a_lost_gpu_that_was_gone_for_a_moment_is_not_well_at_once() -> None:
    gpu = Gpu()
    gpu.read(0, LOST)
    _, gpu.troubles = damped(DriverReady((observed(1),)), gpu.troubles, 5.0, DAMPING)
    assert gpu.read(10) == {LOST}


def test_a_gpu_that_failed_again_is_flapping_until_it_is_back() -> None:
    troubles: Troubles = {}
    said = []
    for now, problems in ((0, (LOST,)), (5, ()), (65, ()), (70, (LOST,)), (75, ()), (195, ())):
        seen, troubles = damped(DriverReady((observed(0, *problems),)), troubles, now, DAMPING)
        assert isinstance(seen, DriverReady)
        said.append(seen.gpus[0].state.flapping)
    assert said == [0, 0, 0, 120, 120, 0]


def test_a_gpu_with_several_problems_that_came_again_is_flapping_for_the_longest_wait() -> None:
    gpu = Gpu()
    gpu.read(0, LOST, SLOW)
    gpu.reads((5, 65))
    gpu.read(70, LOST)
    gpu.reads((75, 195))
    seen, _ = damped(DriverReady((observed(0, LOST, SLOW),)), gpu.troubles, 200, DAMPING)
    assert isinstance(seen, DriverReady)
    assert seen.gpus[0].state.flapping == 240


def test_a_problem_of_which_the_driver_says_something_else_meanwhile_is_not_two() -> None:
    gpu = Gpu()
    gpu.read(0, SLOW)
    hotter = Degraded(DriverVerdict("hw-thermal-slowdown", "is slowed down more"), NOTICED)
    assert gpu.read(5, hotter) == {hotter}
