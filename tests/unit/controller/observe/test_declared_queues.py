"""Who may use a queue: which namespaces, with which priorities."""

from typing import Any

import pytest

from controller.api.queue import DeclaredQueue, read_declared_queue
from controller.observe.declared_queues import DeclaredQueues

TEAM = {"names": ["team"]}


def queue(name: str = "research", **spec: Any) -> DeclaredQueue:
    return read_declared_queue(
        {
            "apiVersion": "scheduling.carina.dev/v1alpha1",
            "kind": "Queue",
            "metadata": {"name": name},
            "spec": spec,
        }
    )


def known(*queues: DeclaredQueue) -> DeclaredQueues:
    made = DeclaredQueues()
    for each in queues:
        made.put(each.queue.name, each)
    return made


def refusal(*queues: DeclaredQueue) -> str | None:
    """Why namespace `team` may not use the first queue."""
    return known(*queues).namespace_refusal(queues[0].queue.name, "team", {"tier": "a"})


def test_a_queue_without_namespaces_admits_nobody() -> None:
    assert refusal(queue()) == (
        "Queue research does not allow namespace team; name another queue in the label "
        "scheduling.carina.dev/queue, or add the namespace to its spec.namespaces"
    )


def test_a_queue_whose_selector_is_empty_admits_all() -> None:
    assert refusal(queue(namespaces={"selector": {}})) is None


def test_above_a_leaf_the_absence_of_namespaces_restricts_nothing() -> None:
    leaf = queue("leaf", parent="middle", namespaces=TEAM)
    assert refusal(leaf, queue("middle", parent="company"), queue("company")) is None


def test_a_queue_that_has_lost_its_last_child_admits_nobody() -> None:
    queues = known(queue("company"), queue("leaf", parent="company", namespaces=TEAM))
    assert queues.namespace_refusal("company", "team", {}) is None  # the engine says why it waits

    queues.put("leaf", None)

    assert queues.namespace_refusal("company", "team", {}) is not None


def test_a_queue_allows_no_more_than_the_queues_above_it() -> None:
    leaf = queue("leaf", parent="middle", namespaces=TEAM)
    company = queue("company", namespaces={"names": ["other"]})

    found = refusal(leaf, queue("middle", parent="company"), company)

    assert found is not None
    assert found.startswith(
        "Queue company, which is above Queue leaf, does not allow namespace team; name another"
    )


def test_the_namespaces_that_a_queue_names_and_that_do_not_exist_are_known() -> None:
    queues = known(queue("a", namespaces={"names": ["x", "y", "z"]}), queue("b", namespaces=TEAM))
    assert queues.missing_namespaces({"team", "y"}) == {"a": ("x", "z")}


def test_only_leaves_without_namespaces_admit_nobody() -> None:
    queues = known(queue("top"), queue("a", parent="top", namespaces=TEAM), queue("b"))
    assert queues.without_namespaces() == ["b"]


def test_queues_in_a_circle_are_looked_at_once() -> None:
    assert refusal(queue("a", parent="b"), queue("b", parent="a")) is None


def test_a_queue_that_does_not_exist_refuses_nobody() -> None:
    assert known().namespace_refusal("gone", "team", {}) is None
    assert known().priority_refusal("gone", 7) is None


@pytest.mark.parametrize(
    ("priorities", "least", "highest"),
    [
        ({"min": 0, "max": 10}, 0, 10),
        ({"max": 10}, -20, 10),
        ({"min": 0}, 0, 20),
        (None, -20, 20),
    ],
)
def test_a_queue_bounds_the_priorities_of_pods(
    priorities: dict[str, int] | None, least: int, highest: int
) -> None:
    queues = known(queue() if priorities is None else queue(priorities=priorities))
    tried = range(-20, 21)

    allowed = [each for each in tried if queues.priority_refusal("research", each) is None]

    assert allowed == list(range(least, highest + 1))
    assert {queues.priority("research", each) for each in tried} == set(allowed)


def test_the_refusal_of_a_priority_says_which_are_allowed() -> None:
    queues = known(queue("leaf", parent="top"), queue("top", priorities={"min": 0, "max": 10}))
    assert queues.priority_refusal("leaf", 2_000_000_000) == (
        "Queue top, which is above Queue leaf, does not allow pods of priority 2000000000; create "
        "them with a priorityClassName whose value is at least 0 and at most 10"
    )


def test_where_queues_contradict_each_other_the_highest_decides_what_a_priority_counts_as() -> None:
    leaf = queue("leaf", parent="top", priorities={"min": 50})
    assert known(leaf, queue("top", priorities={"max": 10})).priority("leaf", 70) == 10
