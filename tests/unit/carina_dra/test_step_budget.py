"""A bound of work in steps."""

import pytest

from carina_dra.step_budget import UNLIMITED, GaveWayError, OutOfStepsError, StepBudget


def test_work_goes_on_until_the_last_step_is_spent() -> None:
    budget = StepBudget(10)
    budget.spend(4)
    budget.spend(6)
    assert budget.spent == 10


def test_work_that_the_budget_does_not_suffice_for_is_refused_with_the_limit() -> None:
    budget = StepBudget(10)
    budget.spend(9)
    with pytest.raises(OutOfStepsError, match="more than 10 steps") as refused:
        budget.spend(2)
    assert refused.value.limit == 10


def test_what_was_spent_is_known_after_the_refusal() -> None:
    budget = StepBudget(1)
    with pytest.raises(OutOfStepsError):
        budget.spend(3)
    assert budget.spent == 3
    assert budget.left == 0


def test_work_whose_result_is_remembered_is_charged_once_by_what_it_is_about() -> None:
    budget = StepBudget(10)
    for _ in range(2):
        budget.spend_once("a", 3)
    budget.spend_once("b", 4)
    assert (budget.spent, budget.left) == (7, 3)


def test_such_work_is_refused_too_if_the_budget_does_not_suffice() -> None:
    with pytest.raises(OutOfStepsError):
        StepBudget(2).spend_once("a", 3)


def test_work_beyond_the_limit_leaves_as_much_as_before() -> None:
    budget = StepBudget(10)
    budget.spend(4)
    budget.extend(100)
    assert (budget.spent, budget.left) == (104, 6)


def test_a_budget_without_a_limit_counts_all_work() -> None:
    budget = StepBudget.unlimited()
    for _ in range(2):
        budget.spend_once("a", 3)
    assert (budget.spent, budget.is_limited) == (6, False)
    assert StepBudget(UNLIMITED - 1).is_limited


def test_work_that_gives_way_looks_again_and_again_whether_it_has_to() -> None:
    looks: list[int] = []

    def is_wanted() -> bool:
        looks.append(budget.spent)
        return len(looks) == 3

    budget = StepBudget(10_000, is_wanted)

    def work() -> None:
        for _ in range(10_000):
            budget.spend(1)

    with pytest.raises(GaveWayError):
        work()
    assert looks == [2_001, 4_002, 6_003]


def test_work_that_need_not_give_way_is_refused_at_its_limit() -> None:
    budget = StepBudget(5_000, lambda: False)
    budget.spend(4_000)
    budget.extend(7_000)
    budget.spend(1_000)
    with pytest.raises(OutOfStepsError, match="more than 12000 steps"):
        budget.spend(1)


def test_work_beside_work_that_gives_way_gives_way_too() -> None:
    budget = StepBudget(10, lambda: True).beside(5_000)
    with pytest.raises(GaveWayError):
        budget.spend(2_001)
