"""What counts as a GPU, and how much of one: as asked, as given, and of what there is."""

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest

from carina_dra.placement.cluster.gpu import GPU
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceClass,
    DeviceResult,
    ResourceClaim,
    ResourceSlice,
    decode,
)
from controller.engine.decide.queues.shares import cluster_total
from controller.engine.model.node import ClusterNode
from controller.engine.model.planned_claim import planned_name
from controller.engine.model.queue import Entitlement, Queue
from controller.engine.model.resource import Gpus
from controller.engine.model.snapshot import Snapshot
from controller.engine.simulate.fleet import DRIVER, GpuUse, NodeTemplate, device_classes
from controller.engine.state.state import State

_H100 = NodeTemplate("h", cpu=1000, memory=2**30, gpus=2, devices=tuple(GpuUse), product="H100")
_A100 = replace(_H100, name="a", gpus=1, devices=(GpuUse.GPU,), product="A100")
_NVIDIA = "gpu.nvidia.com"


def _device(kind: str, driver: str = DRIVER, **more: Any) -> dict[str, Any]:
    bus = {"string": "0000:1b:00.0"}
    attributes = {"type": {"string": kind}, "resource.kubernetes.io/pciBusID": bus}
    return {"name": f"x-{kind}", "attributes": attributes, **more}


def _slice(driver: str, *devices: dict[str, Any]) -> ResourceSlice:
    pool = {"name": "x", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": "h", "pool": pool, "devices": list(devices)}
    return decode(ResourceSlice, {"metadata": {"name": f"x-{driver}"}, "spec": spec})


def _state(*published: ResourceSlice, resource: Gpus | None = None, **fields: Any) -> State:
    """A node `h` of two H100 and a node `a` of one A100, and a queue that counts GPUs."""
    any_device: DeviceClass = decode(DeviceClass, {"metadata": {"name": "any"}, "spec": {}})
    present = Snapshot(
        now=0,
        nodes=(*_nodes(_H100), *_nodes(_A100)),
        slices=(*_H100.slices("h"), *_A100.slices("a"), *published),
        classes=(*device_classes(), any_device),
        queues=(Queue("q", entitlements={resource or Gpus(): Entitlement()}),),
    )
    return State(replace(present, **fields))


def _nodes(template: NodeTemplate) -> tuple[ClusterNode, ...]:
    return tuple(template.nodes())


def _claim(*requests: dict[str, Any]) -> ResourceClaim:
    named = [{"name": f"r{index}", **one} for index, one in enumerate(requests)]
    body = {"metadata": {"name": "c"}, "spec": {"devices": {"requests": named}}}
    return decode(ResourceClaim, body)


def _exactly(device_class: str, **fields: Any) -> dict[str, Any]:
    return {"exactly": {"deviceClassName": device_class, **fields}}


def _profile(profile: str) -> list[dict[str, Any]]:
    return [{"cel": {"expression": f"device.attributes['{DRIVER}'].profile == '{profile}'"}}]


_SEVENTH = _exactly("mig.gpu.carina.dev", selectors=_profile("1g.10gb"))
_SHARE = _exactly("share.gpu.carina.dev", capacity={"requests": {"memory": "20Gi", "cores": "50"}})
_TINY = _exactly("share.gpu.carina.dev", capacity={"requests": {"memory": "1Gi", "cores": "1"}})
_ALTERNATIVES = {
    "firstAvailable": [
        {"name": "whole", "deviceClassName": "gpu.carina.dev"},
        {"name": "part", "deviceClassName": "mig.gpu.carina.dev", "count": 2},
    ]
}


@pytest.mark.parametrize(
    ("requests", "tenths"),
    [
        ([_exactly("gpu.carina.dev", count=2)], 20),
        ([_exactly("gpu.carina.dev", allocationMode="All")], 10),
        ([_exactly("gpu.carina.dev", adminAccess=True)], 0),
        ([_SHARE], 5),
        ([_TINY], 1),
        ([_SHARE, _exactly("gpu.carina.dev")], 15),
        ([_exactly("none")], 0),
    ],
)
def test_a_request_counts_as_the_cheapest_that_it_may_get(
    requests: list[dict[str, Any]], tenths: int
) -> None:
    assert _state().occupancy.asking.asked(_claim(*requests)) == (tenths * GPU // 10,)


def test_a_request_with_alternatives_counts_as_the_cheapest() -> None:
    assert _state().occupancy.asking.asked(_claim(_ALTERNATIVES)) == (2 * GPU // 7,)
    assert _state().occupancy.asking.asked(_claim(_SEVENTH)) == (GPU // 7,)


def test_a_request_that_may_get_another_model_counts_nothing_of_one() -> None:
    whole = _claim(_exactly("gpu.carina.dev"))
    assert _state(resource=Gpus("H100")).occupancy.asking.asked(whole) == (0,)
    assert _state(resource=Gpus("H100")).occupancy.asking.asked(_claim(_SEVENTH)) == (GPU // 7,)


def _given(state: State, *devices: tuple[str, str, str]) -> list[tuple[int, int]]:
    """The parts of GPUs that devices are, and how many resources count each."""
    results = tuple(DeviceResult("r0", *one) for one in devices)
    charge = state.occupancy.asking.given(
        _claim(_exactly("any")), Allocation(DeviceAllocation(results))
    )
    assert charge.amounts == (0,)  # parts of GPUs are added in accounts, one GPU at most once
    return [(one.part, len(one.columns)) for one in charge.gpus]


def test_devices_that_kube_scheduler_may_choose_otherwise_count_beside_all_others() -> None:
    device = Allocation(DeviceAllocation((DeviceResult("r0", DRIVER, "h", "gpu-0"),)))
    claim, asking = _claim(_exactly("gpu.carina.dev")), _state().occupancy.asking
    planned = [
        replace(claim, metadata=replace(claim.metadata, name=planned_name(pod, "nvidia.com/gpu")))
        for pod in ("p", "q")
    ]
    charges = [asking.given(counted, device) for counted in (claim, claim, *planned)]
    assert [sum(held.part for held in charge.gpus) for charge in charges] == [GPU] * 4
    assert len({held.gpu for charge in charges for held in charge.gpus}) == 3


@pytest.mark.parametrize("driver", [DRIVER, _NVIDIA])
@pytest.mark.parametrize("kind", ["gpu", "vfio"])
def test_a_gpu_counts_as_a_whole_one_also_passed_through(driver: str, kind: str) -> None:
    state = _state(_slice(driver, _device(kind)))
    assert _given(state, (driver, "x", f"x-{kind}")) == [(GPU, 1)]


def test_a_partition_of_nvidias_driver_counts_by_its_profile() -> None:
    mig = _device("mig")
    mig["attributes"]["profile"] = {"string": "3g.40gb"}
    state = _state(_slice(_NVIDIA, mig))
    ((part, _),) = _given(state, (_NVIDIA, "x", "x-mig"))
    assert part == GPU // 7 * 3


@pytest.mark.parametrize("driver", [DRIVER, _NVIDIA])
@pytest.mark.parametrize(
    ("said", "part"),
    [
        (None, Fraction(1, 10)),
        ({"string": "1/100"}, Fraction(1, 80)),
        ({"string": "1/4"}, Fraction(1, 4)),
        ({"string": "1/7"}, Fraction(1, 7)),
        ({"string": "1"}, Fraction(1)),
        ({"string": "0"}, Fraction(1, 10)),
        ({"string": "1/0"}, Fraction(1, 10)),
        ({"string": "1000000"}, Fraction(1, 10)),
        ({"string": "a half"}, Fraction(1, 10)),
        ({"int": 1}, Fraction(1, 10)),
        ({"strings": ["1/2"]}, Fraction(1, 10)),
    ],
)
def test_a_part_counts_at_least_the_least_share_of_its_node_and_a_tenth_if_it_says_none(
    driver: str, said: dict[str, Any] | None, part: Fraction
) -> None:
    whole = _device("gpu", driver, capacity={"memory": {"value": "80Gi"}})
    small = _device("mig", driver, capacity={"memory": {"value": "1Gi"}})
    if said is not None:
        small["attributes"]["leastShare"] = said
    state = _state(_slice(driver, whole, small))
    assert _given(state, (driver, "x", "x-mig")) == [(int(part * GPU), 1)]


def test_a_whole_gpu_counts_one_whatever_the_least_share() -> None:
    small = replace(_H100, least_share=Fraction(1, 2))
    state = _state(slices=small.slices("h"))
    assert _given(state, (DRIVER, "h", "gpu-0")) == [(GPU, 1)]
    assert cluster_total(state.occupancy, Gpus()) == 2 * GPU


def test_a_request_counts_the_least_share_of_the_node_where_it_is_least() -> None:
    """The nodes are alike but for it."""
    fourth, half = (replace(_H100, least_share=Fraction(1, parts)) for parts in (4, 2))
    nodes = (*_nodes(_H100), *_nodes(replace(_H100, name="i")))
    state = _state(nodes=nodes, slices=(*half.slices("h"), *fourth.slices("i")))
    assert state.occupancy.asking.asked(_claim(_TINY)) == (GPU // 4,)
    assert state.occupancy.asking.asked(_claim(_SHARE)) == (GPU // 2,)


def test_a_least_share_that_changes_counts_as_it_is_then() -> None:
    state = _state()
    tenth = state.occupancy.asking.asked(_claim(_TINY))
    for published in replace(_H100, least_share=Fraction(1, 3)).slices("h"):
        state.put_devices(published)
    state.refresh()
    assert (tenth, state.occupancy.asking.asked(_claim(_TINY))) == ((GPU // 10,), (GPU // 3,))


@pytest.mark.parametrize(("driver", "kind"), [(DRIVER, "monitor"), ("nic.example.com", "gpu")])
def test_monitors_and_devices_of_other_drivers_do_not_count(driver: str, kind: str) -> None:
    state = _state(_slice(driver, _device(kind)))
    assert _given(state, (driver, "x", f"x-{kind}")) == []


def test_a_resource_of_a_model_counts_its_gpus_only() -> None:
    state = _state(resource=Gpus("H100"))
    assert _given(state, (DRIVER, "h", "gpu-0")) == [(GPU, 1)]
    assert _given(state, (DRIVER, "a", "gpu-0")) == [(GPU, 0)]


@pytest.mark.parametrize(("resource", "count"), [(Gpus(), 3), (Gpus("A100"), 1), (Gpus("B200"), 0)])
def test_what_there_is_of_gpus(resource: Gpus, count: int) -> None:
    assert cluster_total(_state().occupancy, resource) == count * GPU


def test_gpus_of_cordoned_nodes_are_left_out_of_what_there_is() -> None:
    cordoned = tuple(replace(node, unschedulable=True) for node in _nodes(_H100))
    state = _state(nodes=(*cordoned, *_nodes(_A100)))
    state.refresh()
    assert cluster_total(state.occupancy, Gpus()) == GPU
    assert cluster_total(state.occupancy, Gpus("H100")) == 0
