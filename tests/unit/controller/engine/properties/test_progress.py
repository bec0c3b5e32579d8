"""What happens over time: queues get their quota back, nobody starves, and the cluster settles."""

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.decide.cycle import plan
from controller.engine.model.group import Group
from controller.engine.model.pod import Placed
from tests.unit.controller.engine.properties.contention import (
    contended_cluster,
    gpu_cluster,
    queue,
)
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.properties.jobs import simple_job
from tests.unit.controller.engine.properties.running_cluster import (
    STUCK_AFTER,
    RunningCluster,
    random_cluster,
)

_QUIET = 8
"""Rounds without a decision after which a cluster counts as settled."""


@examples(30)
@given(st.randoms(use_true_random=False))
def test_a_contended_cluster_settles(rng: Random) -> None:
    _settles(contended_cluster(rng))


@examples(20)
@given(st.randoms(use_true_random=False))
def test_a_random_cluster_settles(rng: Random) -> None:
    _settles(random_cluster(rng, plan))


def _settles(cluster: RunningCluster) -> None:
    """Comes to a state where nothing is decided any more.

    Each pod may move, or go and come back, a few times, while the others make room for each other:
    the bound is two rounds for each pod, beside the time to leave and the seconds for which groups
    are safe or delayed.
    """
    bound = 20 + 2 * len(cluster.pods)
    quiet = 0
    for _ in range(bound + _QUIET):
        decided = plan(cluster.snapshot())
        quiet = quiet + 1 if decided.is_empty and not cluster.is_leaving else 0
        if quiet == _QUIET:
            return
        cluster.apply(decided)
        cluster.pass_round()
    pytest.fail(f"something is still decided after {bound} rounds")


@examples(30)
@given(
    rng=st.randoms(use_true_random=False),
    quota=st.integers(1, 8),
    rounds_to_leave=st.integers(1, STUCK_AFTER),
)
def test_a_queue_gets_its_quota_back_in_a_cycle_for_each_of_its_jobs(
    rng: Random, quota: int, rounds_to_leave: int
) -> None:
    """One cycle finds victims for at least one more job, as its pods fit wherever somebody goes.

    What they leave is promised, so that it starts in the first cycle after the last one has left. A
    victim that gets another place keeps it in that cycle, and may have to go in the next one.
    """
    cluster = gpu_cluster(2, 4, (queue("owner", quota), queue("b", 0), queue("c", 8 - quota)))
    cluster.rounds_to_leave = (rounds_to_leave,)
    cluster.submit(
        simple_job(f"guest{n}", rng.choice("bc"), pods=pods, least=rng.randint(1, pods))
        for n, pods in enumerate(rng.choices((1, 2, 3), k=10))
    )
    cluster.apply(plan(cluster.snapshot()))
    left, sizes = quota, []
    while left:
        sizes.append(rng.randint(1, min(left, 3)))
        left -= sizes[-1]
    owners = [simple_job(f"own{n}", "owner", pods=size) for n, size in enumerate(sizes)]
    cluster.submit(owners)
    for _ in range(rounds_to_leave * len(owners)):
        cluster.apply(plan(cluster.snapshot()))
        cluster.pass_round()
    cluster.apply(plan(cluster.snapshot()))
    assert all(_runs(cluster, job.group) for job in owners)


@examples(15)
@given(st.randoms(use_true_random=False))
def test_every_job_runs_that_would_run_alone(rng: Random) -> None:
    """Jobs that have run for some rounds end; each evicted one begins again.

    A job is evicted at most once for each other one, so the bound is quadratic; in practice they
    need one or two terms for each job.
    """
    cluster = contended_cluster(rng)
    for key in list(cluster.groups):
        if not _would_run_alone(cluster, cluster.groups[key]):
            cluster.finish(key)
    term = rng.randint(1, 4)
    bound = (term + 4) * (len(cluster.groups) ** 2 + 1)
    for _ in range(bound):
        for group in list(cluster.groups.values()):
            if group.started is not None and cluster.now - group.started >= term:
                cluster.finish(group.key)
        cluster.apply(plan(cluster.snapshot()))
        cluster.pass_round()
        if not cluster.groups:
            return
    pytest.fail(f"after {bound} rounds, these have not run: {sorted(cluster.groups)}")


@examples(15)
@given(rng=st.randoms(use_true_random=False), gpus=st.sampled_from([2, 4]))
def test_a_job_of_equal_priority_waits_for_those_before_it_only(rng: Random, gpus: int) -> None:
    """One-GPU jobs keep coming, more than end: who came first, of a queue, starts first.

    Two equal queues have equal parts of an even number of GPUs at any time, so neither waits for
    the other. Of an odd one, the first queue has one more: only past usage would change that.
    """
    cluster = gpu_cluster(1, gpus, (queue("a"), queue("b")))
    created = 0
    started: dict[str, list[int]] = {"a": [], "b": []}
    for _ in range(12):
        for name in ("a", "b"):
            for _ in range(gpus):
                created += 1
                cluster.submit([simple_job(f"j{created:03}", name, created=created)])
        decided = plan(cluster.snapshot())
        for start in decided.starts:
            group = cluster.groups[cluster.pods[start.pod].group or ""]
            started[group.queue].append(int(group.created))
        cluster.apply(decided)
        runs = [group.queue for group in cluster.groups.values() if _runs(cluster, group)]
        assert runs.count("a") == runs.count("b") == gpus // 2
        cluster.pass_round()
        for group in list(cluster.groups.values()):
            if _runs(cluster, group) and rng.random() < 0.7:
                cluster.finish(group.key)
    for of_queue in started.values():
        assert of_queue == sorted(of_queue)


def _would_run_alone(cluster: RunningCluster, group: Group) -> bool:
    alone = RunningCluster(cluster.nodes, cluster.slices, cluster.queues)
    alone.submit([job for job in cluster.jobs if job.group.key == group.key])
    alone.apply(plan(alone.snapshot()))
    return alone.groups[group.key].started is not None


def _runs(cluster: RunningCluster, group: Group) -> bool:
    pods = [pod for pod in cluster.pods.values() if pod.group == group.key]
    return bool(pods) and all(isinstance(pod.state, Placed) for pod in pods)
