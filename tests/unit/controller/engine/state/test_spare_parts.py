"""How much of partitioned GPUs could be given out if those who have some moved.

Nodes have 8 GPUs of 8 memory slices, each of which can be had as partitions instead.
"""

from dataclasses import replace

import pytest

from carina_dra.allocator.group import WHOLE
from carina_dra.placement.bounds import supply
from carina_dra.placement.cluster.card import PartKind
from carina_dra.resource import ResourceSlice
from controller.engine.decide.cycle import plan
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Placed
from controller.engine.model.reason import NoVictims, TooFewParts
from controller.engine.model.snapshot import Snapshot
from controller.engine.state import spare_parts
from controller.engine.state.state import State
from tests.benchmarks.claims import request
from tests.benchmarks.engine.hardware import MIG, Site, build
from tests.benchmarks.engine.jobs import Job, filling, queue, snapshot, waiting
from tests.benchmarks.engine.rehearsal import Rehearsal
from tests.benchmarks.fleet import Object

_KIND: PartKind = ("counter", "memory-slice-")
_WHOLE_GPU = 'device.attributes["gpu.carina.dev"].type == "gpu"'
_GPUS = 8


def _cluster(*jobs: Job, nodes: int = 2) -> Snapshot:
    return snapshot(build(MIG, nodes), [queue("q", quota=None)], jobs)


def _on_gpu(asked: Object) -> Job:
    """A job that has the first GPU of the first node as a whole."""
    (job,) = waiting("job", "q", asked)
    return _started(job, request(_WHOLE_GPU))


def _started(job: Job, given: Object) -> Job:
    """The job with the devices that another request would have got."""
    (like,) = waiting("like", "q", given)
    rehearsal = Rehearsal(_cluster(like))
    (start,) = rehearsal.decide().starts
    ((_, allocation),) = start.allocations
    (claim,), (pod,) = job.claims, job.pods
    held = replace(claim, status=replace(claim.status, allocation=allocation))
    return Job(job.group, (replace(pod, state=Placed(start.node)),), (held,))


def _most(*jobs: Job) -> int:
    return State(_cluster(*jobs)).spare_parts.most(_KIND)


def test_what_nobody_has_is_to_spare() -> None:
    assert _most() == 2 * _GPUS * WHOLE


def test_a_whole_gpu_is_not_to_spare_that_nothing_less_would_do_for() -> None:
    assert _most(_on_gpu(request(_WHOLE_GPU))) == (2 * _GPUS - 1) * WHOLE


def test_what_a_claim_has_beyond_its_needs_is_to_spare() -> None:
    """The smallest partition has an eighth of the memory."""
    assert _most(_on_gpu(request())) == 2 * _GPUS * WHOLE - WHOLE // 8


def test_what_pods_have_that_are_of_no_group_is_not_to_spare() -> None:
    job = _on_gpu(request())
    cluster = _cluster(job)
    alone = replace(cluster, groups=(), pods=tuple(replace(pod, group=None) for pod in job.pods))
    assert State(alone).spare_parts.most(_KIND) == (2 * _GPUS - 1) * WHOLE


def test_it_follows_claims_pods_and_nodes() -> None:
    job = _on_gpu(request())
    state = State(_cluster(job))
    assert state.spare_parts.most(_KIND) == 2 * _GPUS * WHOLE - WHOLE // 8
    state.remove_pod(job.pods[0].key)
    assert state.spare_parts.most(_KIND) == (2 * _GPUS - 1) * WHOLE
    state.remove_claim(job.claims[0].key)
    assert state.spare_parts.most(_KIND) == 2 * _GPUS * WHOLE
    state.remove_node(build(MIG, 2).nodes[1].name)
    assert state.spare_parts.most(_KIND) == _GPUS * WHOLE


def test_what_claims_need_is_learned_again_when_devices_change() -> None:
    """Once there are whole GPUs only, any device is a whole one."""
    state = State(_cluster(_on_gpu(request())))
    before = state.spare_parts.most(_KIND)
    for published in _whole_only(build(MIG, 2)):
        state.put_devices(published)
    assert state.spare_parts.most(_KIND) == before - WHOLE * 7 // 8


def _whole_only(site: Site) -> list[ResourceSlice]:
    return [
        replace(
            one,
            spec=replace(
                one.spec, devices=tuple(d for d in one.spec.devices if "mig" not in d.name)
            ),
        )
        for one in site.slices
    ]


def _why(decided: Plan) -> object:
    (reasons,) = decided.waiting.values()
    return next(one.why for one in reasons if isinstance(one, NoVictims))


def test_nobody_is_tried_to_move_where_too_little_is_free_together() -> None:
    jobs = filling(MIG, "q", range(2))
    found = _why(plan(_cluster(*jobs, *waiting("new", "q", MIG.whole_node, pods=2))))
    assert isinstance(found, TooFewParts)
    assert found.wanted == 2 * _GPUS * WHOLE


@pytest.mark.parametrize(
    ("free", "wanted", "text"),
    [
        (0, WHOLE, "only 0 of 1 devices are free together"),
        (WHOLE // 8, WHOLE // 4, "only 0.12 of 0.25 devices are free together"),
        (WHOLE - 1, WHOLE, "only 0.99 of 1 devices are free together"),
    ],
)
def test_the_reason_says_how_much_is_free(free: int, wanted: int, text: str) -> None:
    assert str(TooFewParts(free, wanted)) == text


def test_what_specs_need_is_no_more_than_is_remembered_of_each_pool() -> None:
    """Otherwise all pools are asked again about all specs when one slice changes."""
    assert 2 * spare_parts._SPECS <= supply._REMEMBERED
