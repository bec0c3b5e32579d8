"""The packing experiment on a tenth of the cluster: full sizes are for `make bench`."""

from functools import cache

import pytest

from carina_dra.allocator.preference import DEFAULT, Policy
from tests.benchmarks.packing import partitions
from tests.benchmarks.packing.experiment import Outcome, run, scaled
from tests.benchmarks.packing.trace import arrivals, node_kinds, published, until, workload

ALL_GPUS = 6_212


@cache
def _outcome(name: str, policy: Policy, scale: float = 0.05) -> Outcome:
    nodes = list(scaled(node_kinds(), scale))
    gpus = sum(kind.count * kind.gpus for kind in nodes)
    return run(nodes, until(arrivals(workload(name), ALL_GPUS, 1), gpus), policy)


def test_the_cluster_is_that_of_the_paper() -> None:
    assert sum(kind.count for kind in node_kinds()) == 1_213
    assert sum(kind.count * kind.gpus for kind in node_kinds()) == ALL_GPUS


def test_pods_arrive_until_they_ask_for_all_gpus() -> None:
    pods = list(until(arrivals(workload("default"), ALL_GPUS, 1), ALL_GPUS))
    asked = sum(pod.milli for pod in pods)
    assert 0 <= asked - ALL_GPUS * 1_000 < 8_000


def test_the_same_arrivals_give_the_same_result() -> None:
    nodes = list(scaled(node_kinds(), 0.02))
    first, second = (
        run(nodes, until(arrivals(workload("default"), ALL_GPUS, 1), 120), DEFAULT)
        for _ in range(2)
    )
    assert (first.given, first.placed) == (second.given, second.placed)


@pytest.mark.parametrize("name", ["default", "multigpu20"])
def test_the_default_gives_out_about_as_much_as_the_best_published_policy(name: str) -> None:
    few = 1.5  # a small cluster varies more
    assert _outcome(name, DEFAULT).given > published(name)["FGD"] - few


def test_few_free_gpus_are_on_nodes_without_cpu() -> None:
    binpack = _outcome("default", Policy())
    assert _outcome("default", DEFAULT).without_cpu < binpack.without_cpu / 2


def test_of_a_stream_of_partitions_what_there_is_no_room_for_is_refused() -> None:
    refused = partitions.refused(1, DEFAULT, 0)
    assert 30 < refused < 45  # of 140 that are asked for
