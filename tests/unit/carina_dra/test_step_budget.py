"""A bound of work in steps."""

import pytest

from carina_dra.step_budget import OutOfStepsError, StepBudget


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
