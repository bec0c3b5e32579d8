"""Of interchangeable devices a search tries one, and finds the allocation that it finds without."""

from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import Any
from unittest.mock import patch

import pytest

from carina_dra.allocator import search as search_module
from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.ledger import Ledger
from carina_dra.allocator.node import Node
from carina_dra.allocator.request import check
from carina_dra.allocator.symmetry import Symmetry
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import (
    Allocation,
    DeviceAllocation,
    DeviceResult,
    OnNode,
    ResourceClaim,
    ResourceSlice,
)
from tests.conformance.answer import answer
from tests.length import seeds
from tests.samples.allocator_cases import random_case
from tests.samples.fleet import CLASSES, DRIVER, claim, claim_of, consumption, model_is, slices

_SEEDS = seeds(150)
_FEATURES = replace(DEFAULT_FEATURES, compatibility_groups=True)
_TWO = {"name": "gpus", "exactly": {"deviceClassName": "gpu", "count": 2}}
_MEMORY = {"capacity": {"memory": {"value": "8"}}, "allowMultipleAllocations": True}


class _Point:
    """A point of a search on node a; slices come from `slices`."""

    def __init__(
        self,
        published: Sequence[ResourceSlice],
        asked: ResourceClaim | None = None,
        in_common: Sequence[str] = (),
        in_use: Sequence[DeviceResult] = (),
    ) -> None:
        nodes = Cluster(_FEATURES)
        nodes.put_node(Node("a"))
        for one in published:
            nodes.put_slice(one)
        nodes.allocate("default/other", Allocation(DeviceAllocation(tuple(in_use))))
        state = nodes.state("a")
        claims = [check(asked or claim(), CLASSES, _FEATURES)]
        self.ledger = Ledger(state.ready, state.usage, _FEATURES)
        self.devices = {device.id.device: device for device in state.published}
        self._symmetry = Symmetry(state.ready, claims, in_common, state.usage, self.ledger)

    def are_alike(self, *names: str) -> bool:
        """Whether the devices are interchangeable."""
        kind = self._symmetry.now()
        return len({kind(self.devices[name]) for name in names}) == 1


def _plain(*devices: dict[str, Any]) -> list[ResourceSlice]:
    return slices("a", {"devices": list(devices)})


def _with(**attributes: dict[str, Any]) -> dict[str, Any]:
    return {"attributes": attributes}


def _result(device: str, **more: Any) -> DeviceResult:
    return DeviceResult("r", DRIVER, "a", device, **more)


def _shares(device: str, *amounts: str) -> list[DeviceResult]:
    return [
        _result(device, share_id=str(number), consumed_capacity={"memory": Quantity.parse(amount)})
        for number, amount in enumerate(amounts)
    ]


def _halves(*of_each: dict[str, Any], total: str = "4") -> list[ResourceSlice]:
    """GPUs of partitions that consume the same counters, one counter set each."""
    counters = {"memory": {"value": total}}
    sets = [{"name": f"gpu-{index}", "counters": counters} for index in range(len(of_each))]
    devices = [
        {"name": f"{name}-{index}", **consumption(**{f"gpu-{index}": size})}
        for index, sizes in enumerate(of_each)
        for name, size in sizes.items()
    ]
    return slices("a", {"sharedCounters": sets}, {"devices": devices})


# Devices without counters.


def test_devices_that_differ_in_what_nothing_reads_are_interchangeable() -> None:
    devices = [{"name": f"d{n}", **_with(serial={"int": n})} for n in range(2)]
    assert _Point(_plain(*devices)).are_alike("d0", "d1")


@pytest.mark.parametrize(
    "difference",
    [
        {"capacity": {"memory": {"value": "8"}}},
        {"allowMultipleAllocations": True},
        {"taints": [{"key": "k", "effect": "NoSchedule"}]},
        {"bindsToNode": True, "bindingConditions": ["c"], "bindingFailureConditions": ["f"]},
    ],
    ids=lambda difference: next(iter(difference)),
)
def test_devices_that_differ_in_what_matters_to_all_claims_are_not(
    difference: dict[str, Any],
) -> None:
    alike, other = {"name": "d1"}, {"name": "d2", **difference}
    point = _Point(_plain({"name": "d0"}, alike, other))
    assert point.are_alike("d0", "d1")
    assert not point.are_alike("d0", "d2")


def test_devices_of_two_drivers_are_not_interchangeable() -> None:
    other = slices("b", {"nodeName": "a", "driver": "nic.carina.dev", "devices": [{"name": "d1"}]})
    assert not _Point([*_plain({"name": "d0"}), *other]).are_alike("d0", "d1")


def test_device_of_another_node_is_not_interchangeable_with_one_of_this() -> None:
    devices = [{"name": "d0", "nodeName": "a"}, {"name": "d1", "nodeName": "b"}]
    per_device = {"nodeName": None, "perDeviceNodeSelection": True, "devices": devices}
    assert not _Point(slices("a", per_device)).are_alike("d0", "d1")


def test_devices_that_the_node_need_not_prepare_are_not_interchangeable_with_others() -> None:
    skipping = {"devices": [{"name": "d1"}], "skipNodeOperations": ["*"]}
    assert not _Point(slices("a", {"devices": [{"name": "d0"}]}, skipping)).are_alike("d0", "d1")


@pytest.mark.parametrize(
    ("asked", "in_common"),
    [
        (claim(selector=model_is("H200")), ()),
        (claim_of(_TWO, constraints=[{"matchAttribute": f"{DRIVER}/model"}]), ()),
        (claim(), [f"{DRIVER}/model"]),
    ],
    ids=["selector", "constraint", "wish"],
)
def test_attribute_that_is_read_distinguishes_devices(
    asked: ResourceClaim, in_common: Sequence[str]
) -> None:
    models = ["H200", "H200", "L40S"]
    devices = [
        {"name": f"d{n}", **_with(model={"string": model})} for n, model in enumerate(models)
    ]
    point = _Point(_plain(*devices), asked, in_common)
    assert point.are_alike("d0", "d1")
    assert not point.are_alike("d0", "d2")


@pytest.mark.parametrize(
    "in_use",
    [[_result("d2")], _shares("d2", "1"), _shares("d2", "0", "0")],
    ids=["whole", "share", "shares of nothing"],
)
def test_use_distinguishes_devices(in_use: list[DeviceResult]) -> None:
    devices = [{"name": f"d{n}", **_MEMORY} for n in range(3)]
    point = _Point(_plain(*devices), in_use=in_use)
    assert point.are_alike("d0", "d1")
    assert not point.are_alike("d0", "d2")


@pytest.mark.parametrize("amounts", [["3"], ["1", "1"], ["0", "2"]])
def test_shares_in_use_are_compared_by_number_and_amount(amounts: list[str]) -> None:
    devices = [{"name": f"d{n}", **_MEMORY} for n in range(3)]
    in_use = [*_shares("d0", "2"), *_shares("d1", "2"), *_shares("d2", *amounts)]
    point = _Point(_plain(*devices), in_use=in_use)
    assert point.are_alike("d0", "d1")
    assert not point.are_alike("d0", "d2")


def test_what_the_search_has_taken_distinguishes_devices_until_it_is_given_back() -> None:
    point = _Point(_plain(*({"name": f"d{n}", **_MEMORY} for n in range(2))))
    point.ledger.share(point.devices["d0"].id, {})
    assert not point.are_alike("d0", "d1")
    point.ledger.unshare(point.devices["d0"].id)
    assert point.are_alike("d0", "d1")


# Devices that consume counters.


def test_partitions_of_equal_gpus_are_interchangeable() -> None:
    point = _Point(_halves({"whole": 4, "half": 2}, {"whole": 4, "half": 2}))
    assert point.are_alike("half-0", "half-1")
    assert not point.are_alike("half-0", "whole-0")


def test_partitions_beside_others_are_not_interchangeable() -> None:
    point = _Point(_halves({"half": 2}, {"half": 2, "more": 3}))
    assert not point.are_alike("half-0", "half-1")


def test_partitions_of_counters_with_other_totals_are_not_interchangeable() -> None:
    sets = [
        {"name": f"gpu-{index}", "counters": {"memory": {"value": str(total)}}}
        for index, total in enumerate((4, 4, 5))
    ]
    devices = [{"name": f"half-{n}", **consumption(**{f"gpu-{n}": 2})} for n in range(3)]
    point = _Point(slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert point.are_alike("half-0", "half-1")
    assert not point.are_alike("half-0", "half-2")


def test_partition_beside_one_in_use_is_not_interchangeable() -> None:
    gpus = ({"half": 2, "other": 2},) * 3
    point = _Point(_halves(*gpus), in_use=[_result("other-2")])
    assert point.are_alike("half-0", "half-1")
    assert not point.are_alike("half-0", "half-2")


def test_partition_beside_one_that_the_search_has_taken_is_not_interchangeable() -> None:
    point = _Point(_halves(*({"half": 2, "other": 2},) * 3))
    point.ledger.hold(point.devices["other-2"].id, 0, admin=False)
    assert point.are_alike("half-0", "half-1")
    assert not point.are_alike("half-0", "half-2")


def test_partition_that_is_shared_is_not_interchangeable_with_another_of_its_gpu() -> None:
    point = _Point(_halves({"half": 1, "other": 1}))
    assert point.are_alike("half-0", "other-0")
    point.ledger.share(point.devices["half-0"].id, {})
    assert not point.are_alike("half-0", "other-0")


def test_number_of_partitions_that_the_search_has_taken_matters() -> None:
    point = _Point(_halves(*({"half": 1, "other": 1, "third": 1},) * 2))
    for name in ("other-0", "third-0", "other-1"):
        point.ledger.hold(point.devices[name].id, 0, admin=False)
    assert not point.are_alike("half-0", "half-1")


def test_compatibility_groups_distinguish_partitions() -> None:
    drawn = {"counterSet": "x", "counters": {"memory": {"value": "1"}}}
    devices = [
        {"name": f"d{n}", "consumesCounters": [{**drawn, "compatibilityGroups": [group]}]}
        for n, group in enumerate("ggh")
    ]
    sets = [{"name": "x", "counters": {"memory": {"value": "8"}}}]
    point = _Point(slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert point.are_alike("d0", "d1")
    assert not point.are_alike("d0", "d2")


def test_partitions_of_one_gpu_are_told_apart_by_the_counter_sets_that_they_consume() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "4"}}} for name in "xy"]
    devices = [
        {"name": "both", **consumption(x=1, y=1)},
        {"name": "x", **consumption(x=1)},
        {"name": "y", **consumption(y=1)},
    ]
    point = _Point(slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert not point.are_alike("x", "y")


def test_device_in_use_on_another_node_distinguishes_those_that_consume_its_counters() -> None:
    pool = {"name": "a", "generation": 1, "resourceSliceCount": 3}
    sets = [{"name": name, "counters": {"memory": {"value": "4"}}} for name in "xyz"]
    here = [{"name": name, **consumption(**{name: 1})} for name in "xyz"]
    there = [{"name": f"{name}-b", **consumption(**{name: 1})} for name in "z"]
    specs = (
        {"allNodes": True, "nodeName": None, "sharedCounters": sets},
        {"nodeName": "a", "devices": here},
        {"nodeName": "b", "devices": there},
    )
    published = slices("a", *({**spec, "pool": pool} for spec in specs))
    assert _Point(published).are_alike("x", "y", "z")
    in_use = _Point(published, in_use=[_result("z-b")])
    assert in_use.are_alike("x", "y")
    assert not in_use.are_alike("x", "z")


def test_device_of_a_pool_whose_counters_are_overdrawn_is_not_interchangeable() -> None:
    def pool(name: str) -> list[ResourceSlice]:
        sets = [{"name": each, "counters": {"memory": {"value": "4"}}} for each in "xy"]
        devices = [
            {"name": f"{name}-x", **consumption(x=1)},
            {"name": f"{name}-y", **consumption(y=5)},
        ]
        return slices(name, {"sharedCounters": sets}, {"devices": devices})

    published = [
        replace(one, spec=replace(one.spec, nodes=OnNode("a")))
        for name in "ab"
        for one in pool(name)
    ]
    assert _Point(published).are_alike("a-x", "b-x")
    assert not _Point(published, in_use=[_result("a-y")]).are_alike("a-x", "b-x")


# The search.


def test_search_that_tries_one_of_interchangeable_devices_gives_the_same_answer() -> None:
    used = 0
    for seed in _SEEDS:
        case = random_case(Random(seed))
        with patch.object(search_module, "_PATIENCE", 10**9):
            expected = answer(case)
        with (
            patch.object(search_module, "_PATIENCE", -1),
            patch.object(Symmetry, "now", autospec=True, side_effect=Symmetry.now) as now,
        ):
            assert answer(case) == expected, f"seed {seed}"
        used += now.called
    assert used, "no case has had interchangeable devices"
