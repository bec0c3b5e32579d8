"""What is reported of schedulers that were measured in turns."""

from collections.abc import Mapping

from tests.benchmarks.controller.cost import Cost
from tests.benchmarks.controller.results import Goals, Report, Results
from tests.benchmarks.controller.trial import Trial
from tests.benchmarks.measurement import Measurement

_PODS = 101
_IDLE = Cost(10.0, {"kube-apiserver": 0.2}, {})


def _trial(
    binding_s: float,
    *,
    processor_s: Mapping[str, float] | None = None,
    requests: Mapping[str, int] | None = None,
) -> Trial:
    used = {"kube-apiserver": 1.0, "etcd": 1.0, **(processor_s or {})}
    cost = Cost(binding_s, used, requests or {"POST pods": _PODS})
    memory = {"ours": 50.0, "stock": 100.0}
    return Trial(_PODS, binding_s, binding_s + 1, cost, memory)


def _results(scheduler: str, *trials: Trial) -> Results:
    return Results(scheduler, trials, trials[0], (0.2, 0.5, 0.3), _IDLE)


def _beside(ours: Results, stock: Results, goals: Goals) -> dict[str, Measurement]:
    heard: list[Measurement] = []
    Report(heard.append, "fleet", 7).beside(ours, stock, goals)
    return {each.what.removeprefix("7 nodes, ours / stock: "): each for each in heard}


def _of(results: Results, refusal_goal_s: float | None = None) -> dict[str, Measurement]:
    heard: list[Measurement] = []
    Report(heard.append, "fleet", 7).of(results, refusal_goal_s)
    return {each.what.removeprefix("7 nodes, stock: "): each for each in heard}


def test_turns_are_compared_in_pairs_with_the_worst_pair_beside_the_median() -> None:
    ours = _results("ours", _trial(1.0), _trial(8.0), _trial(3.0))
    stock = _results("stock", _trial(2.0), _trial(4.0), _trial(6.0))

    binding = _beside(ours, stock, Goals(binding=0.5))["from one bound pod to the next"]

    assert (binding.value, binding.worst, binding.is_met) == (0.5, 2.0, True)


def test_api_server_and_etcd_count_together_and_nobody_else_with_them() -> None:
    ours = _results("ours", _trial(1.0, processor_s={"etcd": 2.0, "ours": 9.0}))
    stock = _results("stock", _trial(1.0, processor_s={"stock": 2.0}))

    beside = _beside(ours, stock, Goals(binding=None))

    assert beside["API server and etcd, processor time"].value == 1.5
    assert beside["processor time of all"].value == 3.0


def test_more_than_a_fifth_more_requests_miss_the_goal() -> None:
    ours = _results("ours", _trial(1.0, requests={"POST pods": 101, "PATCH pods": 26}))
    stock = _results("stock", _trial(1.0, requests={"POST pods": 101}))

    requests = _beside(ours, stock, Goals(binding=None))["requests"]

    assert not requests.is_met


def test_requests_are_named_by_kind_without_those_of_few_pods() -> None:
    kinds = {"PUT pods": 202, "POST pods": 101, "LIST leases": 1}

    requests = _of(_results("stock", _trial(1.0, requests=kinds)))["requests a pod"]

    assert requests.note == "PUT pods 2, POST pods 1"


def test_time_between_bound_pods_is_said_as_a_rate_too() -> None:
    binding = _of(_results("stock", _trial(4.0)))["from one bound pod to the next"]

    assert (binding.value, binding.unit) == (40.0, "ms")
    assert binding.note == "25 pods/s, 20 since all were created"


def test_refusals_have_the_goal_of_the_scheduler_that_has_one() -> None:
    refused = _of(_results("stock", _trial(1.0)), refusal_goal_s=0.25)['until a "no" is seen']

    assert (refused.value, refused.worst, refused.is_met) == (0.3, 0.5, False)
