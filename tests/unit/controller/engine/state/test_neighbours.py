"""Counts of pods by what affinity terms mean."""

import pytest

from carina_dra.step_budget import UNLIMITED, StepBudget
from controller.engine.model.label_selector import with_labels
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
