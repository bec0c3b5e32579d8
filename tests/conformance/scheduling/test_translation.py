"""A vector becomes a snapshot that means the same."""

import math
from fractions import Fraction
from typing import Any

import pytest

from carina_dra.allocator.node import Node, selects
from carina_dra.allocator.preference import Order
from carina_dra.resource import ExactCount, ExactDeviceRequest, Exactly, ResourceClaim
from controller.engine.model.group import Group, PodSet, SubGroups
from controller.engine.model.plan import Action
from controller.engine.model.pod import Ended, Evicting, Gated, Pending, Placed, Pod, PodState
from controller.engine.model.queue import QUEUE_LABEL, Entitlement
from controller.engine.model.resource import CapacityOf, Cpu, DevicesOf
from controller.engine.model.snapshot import Snapshot
from tests.conformance.scheduling.devices import MEMORY, Gpus
from tests.conformance.scheduling.sample import job, leaf, node, queue, task, vector
from tests.conformance.scheduling.state import settle, state_at_start
from tests.conformance.scheduling.translation import NOW, snapshot_of
from tests.conformance.scheduling.vector import Vector, VectorError

_MIB = 1 << 20
_HALF = {"gpu": 0, "gpuFraction": 0.5, "sharedDevices": 1}


def _snapshot(case: Vector) -> Snapshot:
    gpus = Gpus.of(case)
    return snapshot_of(case, gpus, state_at_start(case, gpus))


def _pod(snapshot: Snapshot, name: str) -> Pod:
    return next(pod for pod in snapshot.pods if pod.key == f"default/{name}")


def _group(snapshot: Snapshot, name: str) -> Group:
    return next(group for group in snapshot.groups if group.key == f"default/{name}")


def _claim(snapshot: Snapshot, name: str) -> ResourceClaim:
    return next(claim for claim in snapshot.claims if claim.metadata.name == name)


def _asked(claim: ResourceClaim) -> ExactDeviceRequest:
    match claim.spec.devices.requests[0].wants:
        case Exactly(request=asked):
            return asked
        case other:
            raise AssertionError(other)


def _devices(claim: ResourceClaim) -> list[str]:
    assert claim.status.allocation is not None
    return [result.device for result in claim.status.allocation.devices.results]


@pytest.mark.parametrize(
    ("state", "expected"),
    [
        ("pending", Pending()),
        ("nominated", Pending()),
        ("gated", Gated()),
        ("allocated", Placed("node0")),
        ("bound", Placed("node0")),
        ("running", Placed("node0")),
        ("evicting", Evicting("node0")),
        ("stuck-evicting", Evicting("node0", stuck=True)),
        ("succeeded", Ended(succeeded=True)),
        ("failed", Ended(succeeded=False)),
    ],
)
def test_state_of_a_task(state: str, expected: PodState) -> None:
    case = vector(job("a", task("a-0", state, "node0")))
    assert _pod(_snapshot(case), "a-0").state == expected


def test_whole_gpus_are_claimed_by_count() -> None:
    snapshot = _snapshot(vector(job("a", task("a-0", request={"gpu": 2}))))
    assert _pod(snapshot, "a-0").claims == ("default/a-0-gpus",)
    asked = _asked(_claim(snapshot, "a-0-gpus"))
    assert (asked.device_class_name, asked.mode) == ("gpu", ExactCount(2))


def test_task_that_asks_for_no_gpu_has_no_claim() -> None:
    snapshot = _snapshot(vector(job("a", task("a-0", request={"gpu": 0}))))
    assert not snapshot.claims
    assert not _pod(snapshot, "a-0").claims


def test_fraction_is_claimed_as_memory_of_each_device() -> None:
    request = {**_HALF, "sharedDevices": 2}
    asked = _asked(_claim(_snapshot(vector(job("a", task("a-0", request=request)))), "a-0-gpus"))
    assert (asked.device_class_name, asked.mode) == ("share", ExactCount(2))
    assert asked.capacity is not None
    assert asked.capacity.requests["memory"].value() == 500 * _MIB  # of nominal GPUs of 1000 MiB


def test_memory_is_claimed_as_it_is() -> None:
    request = {"gpu": 0, "gpuMemoryMiB": 30, "sharedDevices": 1}
    asked = _asked(_claim(_snapshot(vector(job("a", task("a-0", request=request)))), "a-0-gpus"))
    assert asked.capacity is not None
    assert asked.capacity.requests["memory"].value() == 30 * _MIB


def test_tasks_of_one_gpu_group_have_one_gpu_and_whole_ones_another() -> None:
    shared = [
        task(f"a-{index}", "running", "node0", request=_HALF, gpuGroups=["7"]) for index in (0, 1)
    ]
    snapshot = _snapshot(vector(job("b", task("b-0", "running", "node0")), job("a", *shared)))
    devices = [_devices(_claim(snapshot, f"{name}-gpus")) for name in ("a-0", "a-1", "b-0")]
    assert devices == [["gpu-0-share"], ["gpu-0-share"], ["gpu-1"]]


def test_tasks_without_a_gpu_group_have_gpus_of_their_own() -> None:
    shared = [task(f"a-{index}", "running", "node0", request=_HALF) for index in (0, 1)]
    snapshot = _snapshot(vector(job("a", *shared)))
    devices = [_devices(_claim(snapshot, f"{name}-gpus")) for name in ("a-0", "a-1")]
    assert devices == [["gpu-0-share"], ["gpu-1-share"]]


def test_more_devices_in_use_than_there_are_is_an_error() -> None:
    running = [task(f"a-{index}", "running", "node0") for index in range(3)]
    with pytest.raises(VectorError, match="node0"):
        _snapshot(vector(job("a", *running)))


def test_queue_counts_gpus_where_nothing_is_shared() -> None:
    limit = {"gpu": -1, "cpuMilli": -1, "memoryBytes": -1}
    queues = [queue(quota=3, weight={"gpu": 0.1, "cpu": 1, "memory": 1}, limit=limit)]
    snapshot = _snapshot(vector(queues=queues))
    assert snapshot.queues[0].entitlements == {
        DevicesOf("gpu"): Entitlement(3, None, Fraction(1, 10))
    }


def test_queue_counts_memory_of_gpus_where_they_are_shared() -> None:
    jobs = [job("a", task("a-0", request=_HALF))]
    snapshot = _snapshot(vector(*jobs, queues=[queue(quota=0.5)]))
    assert snapshot.queues[0].entitlements == {CapacityOf(MEMORY): Entitlement(500 * _MIB)}


def test_unlimited_quota_is_all_that_is_asked_for() -> None:
    snapshot = _snapshot(vector(queues=[queue(quota=-1)]))
    assert snapshot.queues[0].entitlements[DevicesOf("gpu")].quota is None


def test_all_queues_count_cpu_if_one_has_a_quota_of_it() -> None:
    some = {"gpu": 1, "cpuMilli": 1500, "memoryBytes": -1}
    queues = [queue("one", quota=1), queue("other", rank=1)]
    queues[1]["quota"] = some
    one, other = _snapshot(vector(queues=queues)).queues
    assert one.entitlements[Cpu()].quota is None
    assert other.entitlements[Cpu()].quota == 1500


def test_given_class_that_is_a_gpu_by_its_name_is_what_queues_count() -> None:
    classes = [{"name": "example.com/GPU", "selectors": []}, {"name": "nic", "selectors": []}]
    snapshot = _snapshot(vector(deviceClasses=classes, nodes=[node(gpus=0)]))
    assert [each.metadata.name for each in snapshot.classes] == ["example.com/GPU", "nic"]
    assert list(snapshot.queues[0].entitlements) == [DevicesOf("example.com/GPU")]


def test_given_claim_keeps_its_devices_and_users() -> None:
    given: dict[str, Any] = {
        "deviceClasses": [{"name": "gpu", "selectors": []}],
        "resourceSlices": [
            {"name": "s", "node": "node0", "driver": "d.io", "pool": "p", "devices": ["0", "1"]}
        ],
        "claims": [
            {
                "name": "c",
                "namespace": "default",
                "deviceClass": "gpu",
                "count": 1,
                "labels": {},
                "allocation": [{"driver": "d.io", "pool": "p", "device": "1"}],
                "reservedFor": ["someone"],
            }
        ],
    }
    running = task("a-0", "running", "node0", request={"gpu": 0, "claims": ["c"]})
    snapshot = _snapshot(vector(job("a", running), nodes=[node(gpus=0)], **given))
    assert _pod(snapshot, "a-0").claims == ("default/c",)
    claim = _claim(snapshot, "c")
    assert _devices(claim) == ["1"]
    assert [user.name for user in claim.status.reserved_for] == ["someone", "a-0"]


@pytest.mark.parametrize(
    ("device_class", "labels", "expected"),
    [
        ("gpu", {"kai.scheduler/queue": "queue"}, "queue"),
        ("gpu", {}, ""),
        ("nic", {}, None),
    ],
)
def test_claim_of_gpus_is_for_the_queue_that_its_label_names(
    device_class: str, labels: dict[str, str], expected: str | None
) -> None:
    claim = {
        "name": "c",
        "namespace": "default",
        "deviceClass": device_class,
        "count": 1,
        "labels": labels,
        "allocation": None,
        "reservedFor": [],
    }
    classes = [{"name": device_class, "selectors": []}]
    snapshot = _snapshot(vector(claims=[claim], deviceClasses=classes))
    assert _claim(snapshot, "c").metadata.labels.get(QUEUE_LABEL) == expected


def test_tree_of_a_job() -> None:
    together = {"topology": "t", "required": "rack", "preferred": None}
    tree = {
        "name": "",
        "unit": "children",
        "min": 1,
        "topology": together,
        "children": [leaf("workers", 2), leaf("spare", 0)],
    }
    tasks = [task("a-0", subgroup="workers"), task("a-1", subgroup="spare")]
    snapshot = _snapshot(vector(job("a", *tasks, tree=tree)))
    root = _group(snapshot, "a").root
    assert isinstance(root, SubGroups)
    assert root.min_count == 1
    assert root.topology is not None
    assert root.topology.required == "rack"
    assert root.children == (PodSet("workers", 2), PodSet("spare", 0))
    assert _pod(snapshot, "a-1").pod_set == "spare"


def test_jobs_of_one_age_are_ordered_by_rank() -> None:
    jobs = [job(name, rank=rank, createdAgoS=60) for name, rank in (("younger", 1), ("older", 0))]
    snapshot = _snapshot(vector(*jobs))
    assert _group(snapshot, "older").created < _group(snapshot, "younger").created
    assert _group(snapshot, "younger").created == pytest.approx(NOW - 60, abs=0.001)


def test_rank_that_contradicts_the_age_is_an_error() -> None:
    with pytest.raises(VectorError, match="older"):
        _snapshot(vector(job("a", createdAgoS=1), job("b", rank=1, createdAgoS=2)))


def test_higher_task_priorities_come_first_and_none_last() -> None:
    tasks = [task(f"a-{priority}", taskPriority=priority) for priority in (None, 1, 2)]
    snapshot = _snapshot(vector(job("a", *tasks)))
    order = sorted(snapshot.pods, key=lambda pod: pod.rank)
    assert [pod.key for pod in order] == ["default/a-2", "default/a-1", "default/a-None"]


@pytest.mark.parametrize(
    ("state", "last_start", "expected"),
    [
        ("running", None, NOW - 60),
        ("running", 30, NOW - 30),
        ("pending", None, None),
        ("evicting", None, None),
    ],
)
def test_start_of_a_job(state: str, last_start: float | None, expected: float | None) -> None:
    on = None if state == "pending" else "node0"
    case = vector(job("a", task("a-0", state, on), lastStartAgoS=last_start))
    assert _group(_snapshot(case), "a").started == expected


@pytest.mark.parametrize(
    ("states", "stale_for", "expected"),
    [
        (["running", "running"], None, None),
        (["running", "failed"], None, NOW),
        (["running", "failed"], 61, NOW - 61),
        (["running", "evicting"], None, None),
        (["running", "succeeded"], None, None),
        (["pending", "pending"], None, None),
    ],
)
def test_job_below_its_minimum_is_stale_at_once(
    states: list[str], stale_for: float | None, expected: float | None
) -> None:
    tasks = [
        task(f"a-{index}", state, None if state == "pending" else "node0")
        for index, state in enumerate(states)
    ]
    tree = {
        "name": "",
        "unit": "children",
        "min": 1,
        "topology": None,
        "children": [leaf(needs=2)],
    }
    case = vector(job("a", *tasks, tree=tree, staleForS=stale_for))
    assert _group(_snapshot(case), "a").stale_since == expected


def test_negative_staleness_grace_is_never() -> None:
    snapshot = _snapshot(vector(job("a", stalenessGracePeriodS=-1), job("b", rank=1)))
    assert _group(snapshot, "a").staleness_grace == math.inf
    assert _group(snapshot, "b").staleness_grace is None


@pytest.mark.parametrize(
    ("affinity", "expected"),
    [
        ({"nodeNames": ["node1", "node2"]}, ["node1", "node2"]),
        ({"nodeNames": []}, []),
    ],
)
def test_task_may_name_its_nodes(affinity: dict[str, list[str]], expected: list[str]) -> None:
    snapshot = _snapshot(vector(job("a", task("a-0", affinity=affinity))))
    selector = _pod(snapshot, "a-0").needs.affinity
    assert selector is not None
    names = [f"node{index}" for index in range(4)]
    assert [name for name in names if selects(selector, Node(name))] == expected


def test_affinity_to_pods_names_no_nodes() -> None:
    term = {"topologyKey": "zone", "matchLabels": {"app": "db"}}
    snapshot = _snapshot(vector(job("a", task("a-0", affinity={"podAntiAffinity": [term]}))))
    needs = _pod(snapshot, "a-0").needs
    assert needs.affinity is None
    assert [(each.topology_key, each.anti) for each in needs.pod_affinity] == [("zone", True)]


def test_actions_are_settings() -> None:
    run = {"actions": ["consolidation", "stalegangeviction"]}
    params = {"maxConsolidationPreemptees": 3, "allowConsolidatingReclaim": False}
    settings = _snapshot(vector(run=run, params=params)).settings
    assert settings.actions == (Action.CONSOLIDATE, Action.STALE)
    assert not settings.allocates
    assert settings.consolidation_limit == 3
    assert not settings.moves_reclaimed


def test_action_before_allocate_is_an_error() -> None:
    with pytest.raises(VectorError, match="allocate"):
        _snapshot(vector(run={"actions": ["reclaim", "allocate"]}))


@pytest.mark.parametrize(
    ("gpus", "expected"), [(1, Order.SPREAD), (0, Order.BINPACK)], ids=["of-gpus", "of-cpu"]
)
def test_nodes_are_placed_on_by_what_tasks_ask_for(gpus: int, expected: Order) -> None:
    params = {"gpuPlacement": "spread", "cpuPlacement": "binpack", "gpuSharing": "spread"}
    case = vector(job("a", task("a-0", request={"gpu": gpus})), params=params)
    placement = _snapshot(case).settings.placement
    assert (placement.nodes, placement.devices) == (expected, Order.SPREAD)


def test_evicted_task_gives_back_its_devices_when_it_is_settled() -> None:
    case = vector(job("a", task("a-0", "evicting", "node0")))
    gpus = Gpus.of(case)
    settled = settle(case, state_at_start(case, gpus))
    snapshot = snapshot_of(case, gpus, settled)
    assert _pod(snapshot, "a-0").state == Pending()
    assert _claim(snapshot, "a-0-gpus").status.allocation is None


def test_evicted_task_that_stays_keeps_its_devices() -> None:
    case = vector(job("a", task("a-0", "evicting", "node0"), afterEviction="stays-evicting"))
    gpus = Gpus.of(case)
    settled = settle(case, state_at_start(case, gpus))
    assert _devices(_claim(snapshot_of(case, gpus, settled), "a-0-gpus")) == ["gpu-0"]
