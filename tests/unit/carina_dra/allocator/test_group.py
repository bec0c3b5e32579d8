"""Devices that consume the same counters: which are free, and what each leaves to the others.

The rules are compared with counting, counter by counter and device by device, on a pool over two
nodes, so that devices of the other node consume counters too. Then follow examples.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.group import WHOLE, DeviceGroup, bits_of, groups
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate, PoolSlice, PoolSlices, ReadyPool, resolve
from carina_dra.allocator.usage import DeviceId, SharedUse, Usage
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import DeviceResult
from tests.samples.fleet import DRIVER, consumption, partitions, slices

_SETS = {"gpu-0": {"memory": 4, "engines": 2}, "gpu-1": {"memory": 3, "engines": 0}}
_DRAWN = st.fixed_dictionaries(
    {}, optional={"memory": st.integers(0, 3), "engines": st.integers(0, 2)}
)
_CONSUMED = st.dictionaries(st.sampled_from(sorted(_SETS)), _DRAWN, max_size=2)
_HERE, _ELSEWHERE = "here", "elsewhere"


@dataclass(frozen=True, slots=True)
class _Case:
    pool: ReadyPool
    usage: Usage

    def left(self, *also: Candidate) -> dict[tuple[str, str], int]:
        """What is left of each counter, when these devices are in use too."""
        left = {(name, of): amount for name, of, amount in _counters(self.pool)}
        every = (*self.pool.devices, *self.pool.elsewhere)
        for device in (*(one for one in every if one.id in self.usage), *also):
            for name, of, amount in _drawn(device):
                left[name, of] -= amount
        return left

    def fits(self, device: Candidate, *also: Candidate) -> bool:
        """Whether what the device consumes is left, and nobody has it for himself."""
        left = self.left(*also)
        is_left = all(amount <= left[name, of] for name, of, amount in _drawn(device))
        return is_left and device.id not in self.usage.dedicated


@st.composite
def _cases(draw: st.DrawFn) -> _Case:
    """A pool with some devices on this node and on another, which may have the same names."""
    names = st.lists(st.sampled_from("abcdef"), max_size=5, unique=True)
    specs = [
        {"nodeName": node, "devices": [_device(name, draw(_CONSUMED)) for name in draw(names)]}
        for node in (_HERE, _ELSEWHERE)
    ]
    counters = [_counter_set(name) for name in _SETS]
    published = slices("pool", {"nodeName": _HERE, "sharedCounters": counters}, *specs)
    pool = resolve(PoolSlices(map(PoolSlice.of, published), DEFAULT_FEATURES), Node(_HERE))
    assert isinstance(pool, ReadyPool)
    every = sorted({device.id for device in (*pool.devices, *pool.elsewhere)})
    ids = st.lists(st.sampled_from(every), max_size=4, unique=True) if every else st.just([])
    shared = {device: SharedUse(1, {}) for device in draw(ids)}
    return _Case(pool, Usage(dict.fromkeys(draw(ids), 1), shared))


def _device(name: str, consumed: dict[str, dict[str, int]]) -> dict[str, object]:
    return {
        "name": name,
        "consumesCounters": [
            {"counterSet": counter_set, "counters": _amounts(amounts)}
            for counter_set, amounts in consumed.items()
        ],
    }


def _counter_set(name: str) -> dict[str, object]:
    return {"name": name, "counters": _amounts(_SETS[name])}


def _amounts(amounts: dict[str, int]) -> dict[str, dict[str, str]]:
    return {name: {"value": str(amount)} for name, amount in amounts.items()}


def _counters(pool: ReadyPool) -> Iterator[tuple[str, str, int]]:
    for name, amounts in pool.counters.items():
        for counter, amount in amounts.items():
            yield name, counter, amount


def _drawn(device: Candidate) -> Iterator[tuple[str, str, int]]:
    for consumed in device.device.consumes_counters:
        for counter, amount in consumed.counters.items():
            yield consumed.counter_set, counter, amount.value.nanos


def _members(group: DeviceGroup, mask: int) -> list[Candidate]:
    by_bit = dict(zip(group.bits, group.members, strict=True))
    return [by_bit[bit] for bit in bits_of(mask)]


@given(_cases())
def test_free_devices_are_those_whose_counters_are_left_or_paid_by_a_first_share(
    case: _Case,
) -> None:
    for group in groups(case.pool):
        expected = [
            one
            for one in group.members
            if case.fits(one)
            or (one.id in case.usage.shared and one.id not in case.usage.dedicated)
        ]
        assert _members(group, group.state(case.usage).free) == expected


@given(_cases())
def test_device_blocks_those_that_fit_now_but_not_beside_it(case: _Case) -> None:
    for group in groups(case.pool):
        expected = {
            bit: sum(
                other_bit
                for other_bit, other in zip(group.bits, group.members, strict=True)
                if other is not one
                and case.fits(one)
                and case.fits(other)
                and not case.fits(other, one)
            )
            for bit, one in zip(group.bits, group.members, strict=True)
        }
        assert group.blocked(case.usage, -1) == expected


@given(_cases(), st.integers(0, 63), st.integers(0, 63))
def test_what_a_device_blocks_does_not_depend_on_what_was_asked_before(
    case: _Case, among: int, before: int
) -> None:
    for group, known in zip(groups(case.pool), groups(case.pool), strict=True):
        known.blocked(Usage(), before)
        known.blocked(case.usage, before)
        every = group.blocked(case.usage, -1)
        found = known.blocked(case.usage, among)
        assert all(found[bit] == every[bit] for bit in bits_of(among & group.mask))


@given(_cases())
def test_usage_is_that_of_the_scarcest_counter_of_the_group(case: _Case) -> None:
    left = case.left()
    for group in groups(case.pool):
        counters = [
            (total, left[name, counter])
            for name, amounts in group.totals.items()
            for counter, total in amounts.items()
        ]
        in_use = [one for one in group.members if one.id in case.usage.dedicated]
        alone = any(not one.device.consumes_counters for one in in_use)
        parts = (
            min(WHOLE, (total - rest) * WHOLE // total) if total else (rest < 0) * WHOLE
            for total, rest in counters
        )
        expected = max([WHOLE if alone else 0, *parts])
        assert group.state(case.usage).used == expected


def test_devices_of_a_name_on_two_nodes_are_in_use_together() -> None:
    specs = (
        {"nodeName": node, "devices": [_device("a", {"gpu-0": {"memory": 2}}), *more]}
        for node, more in ((_HERE, [_device("b", {"gpu-0": {"memory": 1}})]), (_ELSEWHERE, []))
    )
    counters = {"nodeName": _HERE, "sharedCounters": [_counter_set("gpu-0")]}
    published = slices("pool", counters, *specs)
    pool = resolve(PoolSlices(map(PoolSlice.of, published), DEFAULT_FEATURES), Node(_HERE))
    assert isinstance(pool, ReadyPool)
    (group,) = groups(pool)

    assert group.state(Usage()).free == 0b11
    assert group.state(Usage({DeviceId(DRIVER, "pool", "a"): 1})).free == 0
    assert group.state(Usage({DeviceId(DRIVER, "pool", "b"): 1})).free == 0b01


def _groups(*published: Any) -> tuple[DeviceGroup, ...]:
    """The groups of the only pool of node a."""
    nodes = Cluster()
    nodes.put_node(Node("a"))
    for one in published:
        nodes.put_slice(one)
    (pool,) = nodes.state("a").ready
    return groups(pool)


def _usage(*devices: str, pool: str = "a") -> Usage:
    return Usage.of(DeviceResult("r", DRIVER, pool, name) for name in devices)


def _names(*members: Any) -> list[str]:
    return [member.id.device for member in members]


def _free(group: DeviceGroup, usage: Usage) -> list[str]:
    free = group.state(usage).free
    members = zip(group.members, group.bits, strict=True)
    return [member.id.device for member, bit in members if bit & free]


def _used(group: DeviceGroup, usage: Usage) -> int:
    return group.state(usage).used


def _blocked(group: DeviceGroup, usage: Usage) -> dict[str, int]:
    """How many others each free device blocks."""
    names = dict(zip(group.bits, (member.id.device for member in group.members), strict=True))
    blocked = group.blocked(usage, group.state(usage).free)
    return {names[bit]: others.bit_count() for bit, others in blocked.items()}


def test_device_blocks_those_that_need_more_than_it_leaves() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2, quarter=1))
    assert _blocked(group, Usage()) == {"whole": 3, "half": 1, "other": 1, "quarter": 1}


def test_devices_in_use_block_nothing_more() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2, quarter=1))
    assert _blocked(group, Usage())["other"] == 1
    assert _blocked(group, _usage("half")) == {"other": 1, "quarter": 1}


def test_device_blocks_another_once_that_needs_two_of_its_counters() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "1"}}} for name in "xy"]
    devices = [{"name": f"p{index}", **consumption(x=1, y=1)} for index in range(2)]
    (group,) = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert _blocked(group, Usage()) == {"p0": 1, "p1": 1}


def test_device_blocks_through_each_of_its_counters() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "1"}}} for name in "xy"]
    devices = [
        {"name": "both", **consumption(x=1, y=1)},
        {"name": "x", **consumption(x=1)},
        {"name": "y", **consumption(y=1)},
    ]
    (group,) = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert _blocked(group, Usage()) == {"both": 2, "x": 1, "y": 1}


def test_device_of_two_counter_sets_joins_their_devices() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "2"}}} for name in "xyz"]
    devices = [
        {"name": "x", **consumption(x=1)},
        {"name": "y", **consumption(y=1)},
        {"name": "z", **consumption(z=1)},
        {"name": "xy", **consumption(x=1, y=1)},
    ]
    together = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert [_names(*group.members) for group in together] == [["x", "y", "xy"], ["z"]]
    apart = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices[:3]}))
    assert [_names(*group.members) for group in apart] == [["x"], ["y"], ["z"]]


def test_counter_sets_are_joined_through_others() -> None:
    sets = [{"name": name, "counters": {"memory": {"value": "2"}}} for name in "xyz"]
    devices = [
        {"name": "x", **consumption(x=1)},
        {"name": "z", **consumption(z=1)},
        {"name": "xy", **consumption(x=1, y=1)},
        {"name": "zy", **consumption(z=1, y=1)},
    ]
    (group,) = _groups(*slices("a", {"sharedCounters": sets}, {"devices": devices}))
    assert _names(*group.members) == ["x", "z", "xy", "zy"]


def test_use_is_that_of_the_scarcest_counter() -> None:
    (group,) = _groups(*partitions("a", 4, half=2, quarter=1))
    assert _used(group, Usage()) == 0
    assert _used(group, _usage("quarter")) == WHOLE // 4
    assert _used(group, _usage("quarter", "half")) == WHOLE // 4 * 3


def test_use_is_at_most_all_though_allocators_conflicted() -> None:
    (group,) = _groups(*partitions("a", 4, half=2, most=3))
    assert _used(group, _usage("half", "most")) == WHOLE


def test_free_devices_are_not_in_use_and_have_their_counters_left() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2, quarter=1))
    assert _free(group, _usage("half")) == ["other", "quarter"]


def test_use_of_a_shared_device_is_that_of_its_scarcest_capacity() -> None:
    capacity = {"memory": {"value": "8"}, "cores": {"value": "100"}}
    device = {"name": "g0", "allowMultipleAllocations": True, "capacity": capacity}
    (group,) = _groups(*slices("a", {"devices": [device]}))
    consumed = {"memory": Quantity.parse("2"), "cores": Quantity.parse("10")}
    share = DeviceResult("r", DRIVER, "a", "g0", share_id="s", consumed_capacity=consumed)
    assert _used(group, Usage.of([share])) == WHOLE // 4


def test_device_with_shares_has_taken_its_counters() -> None:
    (group,) = _groups(*partitions("a", 4, whole=4, half=2, other=2))
    share = Usage.of([DeviceResult("r", DRIVER, "a", "half", share_id="s")])
    assert (_free(group, share), _used(group, share)) == (["half", "other"], WHOLE // 2)


def _over_two_nodes() -> DeviceGroup:
    """A device of node a; one of node b consumes its counters and those of another set."""
    pool = {"name": "fabric", "generation": 1, "resourceSliceCount": 3}
    sets = [{"name": name, "counters": {"memory": {"value": "4"}}} for name in "xy"]
    specs = (
        {"allNodes": True, "nodeName": None, "sharedCounters": sets},
        {"nodeName": "a", "devices": [{"name": "a0", **consumption(x=3)}]},
        {"nodeName": "b", "devices": [{"name": "b0", **consumption(x=2, y=1)}]},
    )
    (group,) = _groups(*slices("fabric", *({**spec, "pool": pool} for spec in specs)))
    return group


def test_device_in_use_on_another_node_leaves_less() -> None:
    group, elsewhere = _over_two_nodes(), _usage("b0", pool="fabric")
    assert (_free(group, Usage()), _used(group, Usage())) == (["a0"], 0)
    assert (_free(group, elsewhere), _used(group, elsewhere)) == ([], WHOLE // 2)


def test_what_is_blocked_follows_devices_in_use_on_another_node() -> None:
    group = _over_two_nodes()
    assert _blocked(group, Usage()) == {"a0": 0}
    assert _blocked(group, _usage("b0", pool="fabric")) == {}


def _shared_gpu(**capacity: int) -> list[Any]:
    """A GPU of which claims get shares, which take all counters, and a partition of it."""
    share = {
        "name": "share",
        "allowMultipleAllocations": True,
        "capacity": {name: {"value": str(amount)} for name, amount in capacity.items()},
        **consumption(gpu=10),
    }
    counters = {"sharedCounters": [{"name": "gpu", "counters": {"memory": {"value": "10"}}}]}
    return slices("a", counters, {"devices": [share, {"name": "half", **consumption(gpu=5)}]})


def _share_of(**amounts: str) -> DeviceResult:
    consumed = {name: Quantity.parse(amount) for name, amount in amounts.items()}
    return DeviceResult("r", DRIVER, "a", "share", share_id="x", consumed_capacity=consumed)


@pytest.mark.parametrize(
    ("shares", "used"),
    [
        ([{"memory": "20", "cores": "1"}], WHOLE // 4),
        ([{"memory": "20", "cores": "5"}], WHOLE // 2),
        ([{"memory": "20", "cores": "1"}, {"memory": "40", "cores": "1"}], WHOLE * 3 // 4),
        ([{"memory": "80", "cores": "1"}], WHOLE),
        ([{"memory": "1n"}], 1),
        ([{}], 1),
    ],
)
def test_shared_device_is_used_as_far_as_the_scarcest_of_its_capacities(
    shares: list[dict[str, str]], used: int
) -> None:
    (group,) = _groups(*_shared_gpu(memory=80, cores=10))
    usage = Usage.of(_share_of(**amounts) for amounts in shares)
    assert _used(group, usage) == used


def test_shared_device_without_capacities_is_used_as_far_as_its_counters() -> None:
    (group,) = _groups(*_shared_gpu())
    assert _used(group, Usage.of([_share_of()])) == WHOLE


def test_partition_beside_shares_counts_as_its_counters() -> None:
    """Another allocator may have given out both."""
    (group,) = _groups(*_shared_gpu(memory=80))
    half = DeviceResult("r", DRIVER, "a", "half")
    assert _used(group, Usage.of([half])) == WHOLE // 2
    assert _used(group, Usage.of([half, _share_of(memory="8")])) == WHOLE * 6 // 10


def test_device_that_is_also_dedicated_is_used_entirely() -> None:
    (group,) = _groups(*_shared_gpu(memory=80))
    dedicated = DeviceResult("r", DRIVER, "a", "share")
    assert _used(group, Usage.of([dedicated, _share_of(memory="8")])) == WHOLE


def test_counters_whose_names_differ_in_digits_only_count_together() -> None:
    def drawn(*names: str) -> dict[str, Any]:
        counters = {name: {"value": "1"} for name in names}
        return {"consumesCounters": [{"counterSet": "gpu", "counters": counters}]}

    every = {f"slice-{index}": {"value": "1"} for index in range(4)} | {"engines": {"value": "3"}}
    published = slices(
        "a",
        {"sharedCounters": [{"name": "gpu", "counters": every}]},
        {
            "devices": [
                {"name": "quarter", **drawn("slice-0")},
                {"name": "half", **drawn("slice-2", "slice-3")},
                {"name": "engine", **drawn("slice-1", "engines")},
            ]
        },
    )
    (group,) = _groups(*published)
    assert _used(group, _usage("quarter")) == WHOLE // 4
    assert _used(group, _usage("quarter", "half")) == WHOLE * 3 // 4
    assert _used(group, _usage("engine")) == WHOLE // 3
