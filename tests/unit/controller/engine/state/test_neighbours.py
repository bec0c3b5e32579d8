"""Counts of pods by what affinity terms mean."""

import pytest

from carina_dra.step_budget import UNLIMITED, StepBudget
from controller.engine.model.label_selector import (
    LabelRequirement,
    LabelSelector,
    LabelSelectorOperator,
    with_labels,
)
from controller.engine.model.pod import Placed, Pod, PodAffinity, PodNeeds, PodSelection
from controller.engine.state.neighbours import Neighbours

_MANY = 1_000


def keeps_away(number: int, namespace: str) -> PodAffinity:
    """A term that nobody else has, against pods with a label that those of `namespace` have."""
    selection = PodSelection(with_labels({"app": "web", f"n{number}": ""}), (namespace,))
    return PodAffinity("zone", selection, anti=True)


def pod(name: str, namespace: str, *terms: PodAffinity) -> Pod:
    labels = {"app": "web"} | {f"n{number}": "" for number in range(_MANY)}
    needs = PodNeeds(pod_affinity=terms)
    return Pod(f"{namespace}/{name}", needs, Placed("a"), labels=labels)


def neighbours(*pods: Pod) -> Neighbours:
    found = Neighbours({one.key: one for one in pods}, {}, {})
    for one in pods:
        found.put(one, "a")
    return found


def guards(found: Neighbours, namespace: str) -> int:
    return len(list(found.guards_against(pod("new", namespace), StepBudget(UNLIMITED))))


def test_the_terms_of_other_namespaces_against_one_are_bounded() -> None:
    hostile = [pod(str(number), "hostile", keeps_away(number, "t")) for number in range(_MANY)]
    assert guards(neighbours(*hostile), "t") == 256


def test_the_terms_of_its_own_namespace_count_beside_those_of_others() -> None:
    hostile = [pod(str(number), "hostile", keeps_away(number, "t")) for number in range(_MANY - 1)]
    own = pod("own", "t", keeps_away(_MANY - 1, "t"))
    assert guards(neighbours(*hostile, own), "t") == 256 + 1


def test_pods_that_go_leave_room_for_the_terms_of_others() -> None:
    pods = [pod(str(number), "hostile", keeps_away(number, "t")) for number in range(256)]
    found = neighbours(*pods)
    for one in pods:
        found.remove(one, "a")
    assert guards(found, "t") == 0
    found.put(pod("other", "u", keeps_away(0, "t")), "a")
    assert guards(found, "t") == 1


@pytest.mark.parametrize(("requirements", "steps"), [(1, 1 + 64 // 32), (100, 1 + 6_400 // 32)])
def test_pods_are_counted_at_a_price_for_each_requirement(requirements: int, steps: int) -> None:
    found = neighbours(*(pod(str(number), "t") for number in range(64)))
    selector = with_labels({f"n{number}": "" for number in range(requirements)})
    budget = StepBudget(UNLIMITED)
    found.counts((PodSelection(selector, ("t",)),), budget)
    assert budget.spent == steps


class TestNamespaces:
    """Tenants may ask for pods of namespaces of any name."""

    def _counted(self, found: Neighbours, namespace: str) -> dict[str, int]:
        selections = (PodSelection(with_labels({"app": "web"}), (namespace,)),)
        return found.counts(selections, StepBudget(UNLIMITED)).by_node

    def test_counts_for_very_many_are_not_kept(self) -> None:
        found = neighbours(pod("a", "t"))
        for number in range(5_000):
            self._counted(found, f"made-up-{number}")
        assert found.kept_namespaces == 4_096

    def test_what_is_counted_again_is_right(self) -> None:
        one = pod("a", "t")
        found = Neighbours({one.key: one}, {"a": {one.key: None}}, {})
        assert self._counted(found, "t") == {"a": 1}
        for number in range(5_000):
            self._counted(found, f"made-up-{number}")
        assert found.is_awaited(pod("b", "t"))
        assert self._counted(found, "t") == {"a": 1}

    def test_counts_of_one_that_is_gone_are_forgotten(self) -> None:
        found = neighbours(pod("a", "t"))
        self._counted(found, "t")
        assert found.forget_namespaces("t")
        assert found.kept_namespaces == 0
        assert not found.forget_namespaces("t")


def large(number: int, requirements: int) -> PodSelection:
    """Means the pods of all namespaces that lack some labels which nobody has."""
    absent = LabelSelectorOperator.DOES_NOT_EXIST
    lacks = (LabelRequirement(f"{number}/{each}", absent) for each in range(requirements))
    return PodSelection(LabelSelector(tuple(lacks)), (), LabelSelector())


def kept(found: Neighbours) -> int:
    """The requirements with which a pod that comes is compared."""
    counts = found._to_count.get("", {}).values()
    return sum(
        len(selection.selector.requirements)
        for of_label in counts
        for key in of_label
        for selection in key
        if selection.selector is not None
    )


def test_a_pod_that_comes_is_compared_with_a_bounded_number_of_requirements() -> None:
    found = neighbours(pod("p", "t"))
    for number in range(300):
        found.counts((large(number, 60),), StepBudget(UNLIMITED))
    assert kept(found) <= 512
    found.counts((large(0, 1_000),), StepBudget(UNLIMITED))
    assert kept(found) == 1_000
    found.counts((large(1, 1),), StepBudget(UNLIMITED))
    assert kept(found) == 1


def test_terms_of_other_namespaces_have_a_bounded_number_of_requirements() -> None:
    terms = [PodAffinity("zone", large(number, 60), anti=True) for number in range(300)]
    assert guards(neighbours(pod("hostile", "hostile", *terms)), "t") == 512 // 60


def test_an_attempt_that_asks_for_more_than_is_kept_pays_each_time() -> None:
    found, budget = neighbours(*(pod(str(number), "t") for number in range(64))), StepBudget(10**6)
    selections = [(large(number, 300),) for number in range(4)]
    for one in selections:
        found.counts(one, budget)
    once = budget.spent
    for one in selections:
        found.counts(one, budget)
    assert budget.spent == 2 * once
    found.counts(selections[-1], budget)
    assert budget.spent == 2 * once


def test_what_is_forgotten_has_all_asked_again_once() -> None:
    found = neighbours(pod("p", "t"))
    for number in range(2):
        found.counts((large(number, 512),), StepBudget(UNLIMITED))
    other = Pod("u/p", PodNeeds(), Placed("a"), labels={"0/0": "", "1/0": ""})
    assert found.is_awaited(other)
    found.all_are_asked_again()
    assert not found.is_awaited(other)
