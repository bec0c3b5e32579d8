"""Which pods a change of a disruption budget concerns, and what asking for them costs."""

from collections.abc import Mapping
from dataclasses import replace
from random import Random
from typing import Any

import pytest

from controller.engine.model.queue import QUEUE_LABEL
from controller.observe.budget import DisruptionBudget, read_budget
from controller.observe.disruption import Disruptions
from controller.observe.pod import ObservedPod, read_pod


def _pod(name: str, **labels: str) -> ObservedPod:
    metadata = {
        "namespace": "team",
        "name": name,
        "uid": name,
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {QUEUE_LABEL: "q", **labels},
    }
    return read_pod({"metadata": metadata, "spec": {"containers": []}})


def _budget(name: str, **labels: str) -> DisruptionBudget:
    metadata: dict[str, Any] = {"namespace": "team", "name": name}
    return read_budget({"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}})


def test_a_budget_concerns_the_pods_that_it_counts() -> None:
    known, a, b = Disruptions(), _pod("a", app="a"), _pod("b", app="b")
    known.put_pod(a)
    known.put_pod(b)
    assert known.put_budget("team", "team/x", _budget("x", app="a")) == {"team/a": None}
    assert known.budgets_of(a, 0) == (("team/x",), None)
    both = {"team/a": None, "team/b": None}
    assert known.put_budget("team", "team/x", _budget("x", app="b")) == both
    assert known.put_budget("team", "team/x", None) == {"team/b": None}


def test_a_pod_is_asked_about_a_bounded_number_of_budgets() -> None:
    known, pod = Disruptions(), _pod("a", app="a")
    known.put_pod(pod)
    for at in range(1000):
        known.put_budget("team", f"team/{at}", _budget(str(at), app="b"))
    known.put_budget("team", "team/last", _budget("last", app="a"))
    assert known.budgets_of(pod, 0) == ((), None)


def test_a_budget_keeps_its_turn_when_its_status_changes() -> None:
    known, pod = Disruptions(), _pod("a", app="a")
    known.put_pod(pod)
    known.put_budget("team", "team/first", _budget("first", app="a"))
    for at in range(1000):
        known.put_budget("team", f"team/{at}", _budget(str(at), app="b"))
    known.put_budget("team", "team/first", _budget("first", app="a"))
    assert known.budgets_of(pod, 0) == (("team/first",), None)


def test_several_budgets_may_count_a_pod() -> None:
    known, pod = Disruptions(), _pod("a", app="a")
    known.put_pod(pod)
    for name in ("b", "a"):
        known.put_budget("team", f"team/{name}", _budget(name, app="a"))
    assert known.budgets_of(pod, 0) == (("team/a", "team/b"), None)


def test_of_many_budgets_that_count_a_pod_some_are_enough() -> None:
    known, pod = Disruptions(), _pod("a", app="a")
    for at in range(1000):
        known.put_budget("team", f"team/{at}", _budget(str(at), app="a"))
    known.put_pod(pod)
    assert len(known.budgets_of(pod, 0)[0]) == 8


def test_a_budget_counts_a_pod_by_the_labels_that_the_pod_has_now() -> None:
    known = Disruptions()
    known.put_budget("team", "team/x", _budget("x", app="a"))
    known.put_pod(_pod("a", app="b"))
    assert known.budgets_of(_pod("a"), 0) == ((), None)
    known.put_pod(_pod("a", app="a"))
    assert known.budgets_of(_pod("a"), 0) == (("team/x",), None)


def test_a_budget_that_was_one_too_many_is_looked_at_once_another_is_gone() -> None:
    known, pod = Disruptions(), _pod("a", app="a")
    known.put_pod(pod)
    for at in range(256):
        known.put_budget("team", f"team/{at}", _budget(str(at), app="b"))
    assert known.put_budget("team", "team/last", _budget("last", app="a")) == {}
    assert known.put_budget("team", "team/7", None) == {"team/a": None}
    assert known.budgets_of(pod, 0) == (("team/last",), None)


def test_a_budget_is_asked_about_each_pod_once(monkeypatch: pytest.MonkeyPatch) -> None:
    known, asked = Disruptions(), list[str]()
    counts = DisruptionBudget.counts

    def noting(self: DisruptionBudget, namespace: str, labels: Mapping[str, str]) -> bool:
        asked.append(self.key)
        return counts(self, namespace, labels)

    monkeypatch.setattr(DisruptionBudget, "counts", noting)
    pods = [_pod(str(at), app="a") for at in range(10)]
    for pod in pods:
        known.put_pod(pod)
    for at in range(20):
        known.put_budget("team", f"team/{at}", _budget(str(at), app="b"))
    assert len(asked) == 200
    known.put_budget("team", "team/0", _budget("0", app="a"))
    for pod in pods:
        known.put_pod(pod)
        assert known.budgets_of(pod, 0) == (("team/0",), None)
    assert len(asked) == 210


@pytest.mark.parametrize("seed", range(5))
def test_budgets_that_come_and_go_count_the_pods_that_their_selectors_match(seed: int) -> None:
    draw, known = Random(seed), Disruptions()
    pods, budgets = dict[str, ObservedPod](), dict[str, DisruptionBudget]()
    for _ in range(300):
        name, app = draw.choice("abcdef"), draw.choice("xy")
        match draw.randrange(4):
            case 0:
                pods[name] = _pod(name, app=app)
                known.put_pod(pods[name])
            case 1 if name in pods:
                known.remove_pod(pods.pop(name))
            case 2:
                budgets[name] = _budget(name, app=app)
                known.put_budget("team", name, budgets[name])
            case _:
                budgets.pop(name, None)
                known.put_budget("team", name, None)
        for pod in pods.values():
            counting = (key for key, one in budgets.items() if one.counts("team", pod.labels))
            assert known.budgets_of(pod, 0)[0] == tuple(sorted(counting))


def test_a_pod_that_is_gone_or_names_no_queue_any_more_concerns_no_budget() -> None:
    known, gone, plain = Disruptions(), _pod("gone", app="a"), _pod("plain", app="a")
    for pod in (gone, plain, _pod("there", app="a")):
        known.put_pod(pod)
    known.remove_pod(gone)
    known.put_pod(replace(plain, labels={"app": "a"}))
    assert known.put_budget("team", "team/x", _budget("x", app="a")) == {"team/there": None}


def test_a_pod_is_evicted_once_and_not_again_while_the_api_server_refuses_it() -> None:
    known, pod = Disruptions(), _pod("a")
    assert known.may_be_evicted("team/a", 0)
    known.assume_evicted(pod, 3)
    assert not known.may_be_evicted("team/a", 0)
    assert known.evicted_at(pod) == 3
    assert known.forget_eviction(pod, 10)
    assert not known.forget_eviction(pod, 20)
    assert known.evicted_at(pod) is None
    assert [known.may_be_evicted("team/a", now) for now in (9, 10)] == [False, True]
    assert [known.budgets_of(pod, now) for now in (9, 10)] == [(("(refused)",), 10), ((), None)]


def test_another_pod_of_the_name_has_not_been_evicted() -> None:
    known, pod = Disruptions(), _pod("a")
    known.assume_evicted(pod, 3)
    assert known.evicted_at(replace(pod, uid="new")) is None
    assert not known.forget_eviction(replace(pod, uid="new"), 10)
    assert known.evicted_at(pod) == 3
