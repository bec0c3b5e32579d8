"""What a search tries, where it ends, and what it does not try."""

from itertools import chain, repeat
from typing import Any
from unittest.mock import patch

import pytest

from carina_dra.allocator import matching as matching_module
from carina_dra.allocator.allocate import Allocated, Chosen, choose
from carina_dra.allocator.errors import AllocationError, ExpressionError
from carina_dra.allocator.matching import Matching, amounts_of
from carina_dra.allocator.preference import FAR, Policy
from carina_dra.allocator.request import check
from carina_dra.allocator.search import CutShort, Impossible, Matchings, Search
from carina_dra.resource import ResourceClaim
from tests.conformance.answer import attempt, read
from tests.samples.fleet import CLASSES, claim, cluster, gpu

_NUMBER = 'device.attributes["d"].n'


def _request(name: str, count: int = 1, selector: str = "true", **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "deviceClassName": "any",
        "count": count,
        "selectors": [{"cel": {"expression": selector}}],
        **more,
    }


def _exactly(name: str, count: int = 1, selector: str = "true") -> dict[str, Any]:
    asked = _request(name, count, selector)
    return {"name": asked.pop("name"), "exactly": asked}


def _case(
    devices: list[dict[str, Any]], *claims: dict[str, Any], **slice_fields: Any
) -> dict[str, Any]:
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "devices": devices, **slice_fields}
    return {
        "features": ["DRAPrioritizedList"],
        "node": {"metadata": {"name": "n"}},
        "classes": [{"metadata": {"name": "any"}, "spec": {}}],
        "slices": [{"metadata": {"name": "s"}, "spec": spec}],
        "claims": [
            {"metadata": {"name": f"c{index}"}, "spec": {"devices": asked}}
            for index, asked in enumerate(claims)
        ],
        "allocatedDevices": [],
    }


def _numbered(*numbers: int) -> list[dict[str, Any]]:
    return [
        {"name": f"dev-{index}", "attributes": {"n": {"int": number}}}
        for index, number in enumerate(numbers)
    ]


def _devices(case: dict[str, Any]) -> list[str]:
    found = attempt(case)
    assert isinstance(found, Allocated)
    return [result.device for one in found.allocations for result in one.devices.results]


def test_alternative_with_too_many_devices_does_not_end_the_search_for_the_next() -> None:
    """The first device of the later alternative has none beside it that the constraint allows."""
    alternatives = [_request("many", 33, f"{_NUMBER} < 10"), _request("one", 1, f"{_NUMBER} < 10")]
    first = {"name": "first", "firstAvailable": alternatives}
    devices = [
        {"name": name, "attributes": {"n": {"int": number}, "side": {"string": side}}}
        for name, number, side in (("a", 1, "left"), ("b", 2, "right"), ("c", 10, "right"))
    ]
    asked = {
        "requests": [first, _exactly("second", 1, f"{_NUMBER} == 10")],
        "constraints": [{"matchAttribute": "d/side"}],
    }
    assert _devices(_case(devices, asked)) == ["b", "c"]


def test_request_that_is_impossible_alone_ends_a_long_search_for_its_claim() -> None:
    requests = [
        _exactly("first", 3, f"{_NUMBER} >= 0"),
        _exactly("second", 3, f"{_NUMBER} >= 0"),
        _exactly("hopeless", 1, f"{_NUMBER} > 100"),
    ]
    found = attempt(_case(_numbered(*range(24)), {"requests": requests}))
    assert isinstance(found, Impossible)
    assert found.steps <= 2 * 5_000  # the search, and that for the request alone


def test_device_that_fails_late_in_a_long_search_is_an_error_though_a_part_is_impossible() -> None:
    """The selector of the first claim fails on the last device, to which it comes at last."""
    devices = [*_numbered(*range(11)), {"name": "last"}]
    has_number = f'"n" in device.attributes["d"] && {_NUMBER} >= 0'
    case = _case(
        devices,
        {"requests": [_exactly("failing", 1, f"{_NUMBER} >= 0")]},
        {"requests": [_exactly("many", 5, has_number)]},
        {"requests": [_exactly("hopeless", 1, f"{has_number} && {_NUMBER} > 100")]},
    )
    with pytest.raises(AllocationError, match="d/p/last: CEL runtime error"):
        attempt(case)


def test_amount_that_fails_late_in_a_long_search_is_an_error_though_a_part_is_impossible() -> None:
    """The amount is too large for the range of the last device, and for that of no other."""
    memory = {"value": "20000000000000000000"}
    ranged = {**memory, "requestPolicy": {"default": "1", "validRange": {"min": "1", "step": "1"}}}
    devices = [{**device, "capacity": {"memory": memory}} for device in _numbered(*range(11))]
    failing = _exactly("failing")
    failing["exactly"]["capacity"] = {"requests": {"memory": "9223372036854775808"}}
    has_number = f'"n" in device.attributes["d"] && {_NUMBER} >= 0'
    case = _case(
        [*devices, {"name": "last", "capacity": {"memory": ranged}}],
        {"requests": [failing]},
        {"requests": [_exactly("many", 5, has_number)]},
        {"requests": [_exactly("hopeless", 1, f"{has_number} && {_NUMBER} > 100")]},
    )
    case["features"] = ["DRAConsumableCapacity"]
    with pytest.raises(AllocationError, match="capacity for device d/p/last"):
        attempt(case)


@pytest.mark.parametrize(
    ("gates", "is_free"),
    [
        ([], True),
        (["DRAListTypeAttributes"], False),
        (["DRAOptionalNodeOperations"], False),
    ],
    ids=["no alpha feature", "another alpha feature", "the feature"],
)
def test_device_that_skips_node_operations_is_for_nodes_that_declare_it(
    gates: list[str], *, is_free: bool
) -> None:
    """Without any alpha feature, the field is not known: everything is prepared."""
    skipping = {"skipNodeOperations": ["NodePrepareResources"]}
    case = _case([{"name": "dev"}], {"requests": [_exactly("r")]}, **skipping)
    case["features"] = gates
    found = attempt(case)
    assert isinstance(found, Allocated) == is_free
    if isinstance(found, Allocated):
        (result,) = found.allocations[0].devices.results
        assert result.skip_node_operations == ()
    case["node"]["status"] = {"declaredFeatures": ["DRAOptionalNodeOperations"]}
    declared = is_free or gates == ["DRAOptionalNodeOperations"]
    assert isinstance(attempt(case), Allocated) == declared


def test_selector_is_not_evaluated_on_devices_in_use() -> None:
    case = _case(
        [{"name": "in-use"}, *_numbered(1)], {"requests": [_exactly("r", 1, f"{_NUMBER} == 1")]}
    )
    with pytest.raises(AllocationError, match="d/p/in-use: CEL runtime error"):
        attempt(case)
    case["allocatedDevices"] = [{"driver": "d", "pool": "p", "device": "in-use"}]
    assert _devices(case) == ["dev-0"]


@pytest.mark.parametrize(
    "second",
    [
        _exactly("second"),
        {"name": "second", "firstAvailable": [_request("two", 2), _request("one", 1)]},
    ],
    ids=["exactly", "firstAvailable"],
)
def test_claim_with_too_many_devices_is_not_searched_for_with_others_of_them(
    second: dict[str, Any],
) -> None:
    """With all 32 devices of its first request, a claim can have no other device."""
    alternatives = [_request("many", 32), _request("one", 1)]
    asked = [{"name": "first", "firstAvailable": alternatives}, second]
    found = attempt(_case(_numbered(*range(40)), {"requests": asked}))
    assert isinstance(found, Allocated)
    assert len(found.allocations[0].devices.results) in (2, 3)
    assert found.steps < 50


def test_admin_access_takes_no_share_of_a_device() -> None:
    shared = {
        "name": "dev",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8"}},
    }
    seeing = _exactly("seeing")
    seeing["exactly"]["adminAccess"] = True
    using = {"requests": [_exactly("using")]}
    case = _case([shared], {"requests": [seeing]}, using)
    case["features"] = ["DRAAdminAccess", "DRAConsumableCapacity"]
    assert _devices(case) == ["dev", "dev"]
    case["claims"] = [*case["claims"], {"metadata": {"name": "c2"}, "spec": {"devices": using}}]
    assert isinstance(attempt(case), Impossible)


def test_device_that_a_constraint_refuses_is_not_held_against_others() -> None:
    devices = [
        {"name": name, "attributes": {"serial": {"int": serial}, "numa": {"int": numa}}}
        for name, serial, numa in (("a", 1, 0), ("b", 2, 1), ("c", 2, 0))
    ]
    constraints = [{"distinctAttribute": "d/serial"}, {"matchAttribute": "d/numa"}]
    asked = {"requests": [_exactly("r", 2)], "constraints": constraints}
    assert _devices(_case(devices, asked)) == ["a", "c"]


@pytest.mark.parametrize(
    ("count", "names", "error"),
    [(2, ("dev",), "being updated"), (1, ("dev", "dev"), "invalid")],
)
def test_all_devices_of_a_pool_that_is_not_ready_cannot_be_asked_for(
    count: int, names: tuple[str, ...], error: str
) -> None:
    every = {"name": "r", "exactly": {"deviceClassName": "any", "allocationMode": "All"}}
    case = _case(
        [{"name": name} for name in names],
        {"requests": [every]},
        pool={"name": "p", "generation": 1, "resourceSliceCount": count},
    )
    with pytest.raises(AllocationError, match=f"pool d/p is currently {error}"):
        attempt(case)


def test_expression_that_does_not_compile_is_no_error_of_the_node() -> None:
    nodes = cluster(a=[gpu("g0")])
    claims = [check(claim(selector="nonsense"), CLASSES, nodes.features)]
    with pytest.raises(ExpressionError, match="CEL compile error"):
        choose(claims, nodes.state("a"), policy=Policy())


def test_search_with_many_like_devices_tries_one_of_them() -> None:
    """Of 24 devices, 6 and 19 are asked for; there are 134,596 ways to choose the 6."""
    first, second = ({"requests": [_exactly("r", count)]} for count in (6, 19))
    found = attempt(_case([{"name": f"dev-{index}"} for index in range(24)], first, second))
    assert isinstance(found, Impossible)
    assert found.steps < 1_000


@pytest.mark.parametrize(("wanted", "is_possible"), [("8", True), ("9", False)])
def test_admin_access_is_to_devices_of_the_capacity_though_others_use_it(
    wanted: str, *, is_possible: bool
) -> None:
    shared = {
        "name": "dev",
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "8"}},
    }
    seeing = _exactly("seeing")
    seeing["exactly"] |= {"adminAccess": True, "capacity": {"requests": {"memory": wanted}}}
    case = _case([shared], {"requests": [_exactly("using")]}, {"requests": [seeing]})
    case["features"] = ["DRAAdminAccess", "DRAConsumableCapacity"]
    assert isinstance(attempt(case), Allocated) == is_possible


# Steps.


def _pair_of_nine(*more: dict[str, Any]) -> dict[str, Any]:
    """Nine devices of 16, of which any nine have a number in common."""
    asked = {
        "requests": [_exactly("nine", 9), *more],
        "constraints": [{"distinctAttribute": "d/n", "requests": ["nine"]}],
    }
    return _case(_numbered(*range(8), *range(8)), asked)


def test_search_that_was_cut_short_goes_on_where_it_was() -> None:
    claims, state = read(_pair_of_nine())
    at_once = Search(claims, state, Matchings(state.published, state.features)).run()
    search = Search(claims, state, Matchings(state.published, state.features))
    for limit in (0, 1, 2, 50, 500):
        assert search.run(limit) == CutShort(limit)
    assert search.run() == at_once == Impossible(at_once.steps)
    assert at_once.steps > 500


def test_search_ends_soon_after_its_time_is_up() -> None:
    claims, state = read(_pair_of_nine())
    search = Search(claims, state, Matchings(state.published, state.features))
    looks = chain(repeat(False, 3), repeat(True))
    found = search.run(expired=lambda: next(looks))
    assert isinstance(found, CutShort)
    assert 0 < found.steps < 200


@pytest.mark.parametrize("policy", ["upstream", "binpack"])
@pytest.mark.parametrize("limit", [0, 1, 999, 4_999, 5_000, 5_001, 7_000, 10_000])
def test_all_searches_on_a_node_keep_the_step_limit_together(policy: str, limit: int) -> None:
    claims, state = read(_pair_of_nine(_exactly("one")))
    found = choose(claims, state, policy=Policy.parse(policy), max_steps=limit)
    assert found == CutShort(limit)


def test_each_device_is_matched_with_a_request_once() -> None:
    case = _pair_of_nine()
    case["features"] = ["DRAConsumableCapacity"]
    with (
        patch.object(
            Matching, "refused_by", autospec=True, side_effect=Matching.refused_by
        ) as matched,
        patch.object(matching_module, "amounts_of", wraps=amounts_of) as counted,
    ):
        attempt(case)
    assert (matched.call_count, counted.call_count) == (16, 16)


def _steps(asked: ResourceClaim, least_distance: int) -> int:
    nodes = cluster(a=[gpu("g0", numa=0, root="r0"), gpu("g1", numa=1, root="r1")])
    claims = [check(asked, CLASSES, nodes.features)]
    return choose(claims, nodes.state("a"), policy=Policy(), least_distance=least_distance).steps


def test_devices_closer_than_the_least_distance_are_not_searched_for() -> None:
    assert _steps(claim(2), FAR) < _steps(claim(2), FAR - 1) < _steps(claim(2), 0)


@pytest.mark.parametrize("policy", [Policy(), Policy(devices=None)], ids=["own", "upstream"])
def test_part_that_is_impossible_alone_may_be_possible_beside_what_gives(policy: Policy) -> None:
    """The API lets a device consume less than nothing of a counter."""
    counters = [{"name": "set", "counters": {"memory": {"value": "1"}}}]
    pool = {"name": "p", "generation": 1, "resourceSliceCount": 2}
    devices = [
        {
            **_numbered(amount)[0],
            "name": name,
            "consumesCounters": [
                {"counterSet": "set", "counters": {"memory": {"value": str(amount)}}}
            ],
        }
        for name, amount in (("gives", -1), ("needs", 2))
    ]
    alternatives = [_request("first", selector=f"{_NUMBER} == 2"), _request("later", count=9)]
    asked = [
        _exactly("gives", selector=f"{_NUMBER} == -1"),
        {"name": "x", "firstAvailable": alternatives},
    ]
    case = _case(devices, {"requests": asked}, pool=pool)
    spec = {"driver": "d", "nodeName": "n", "pool": pool, "sharedCounters": counters}
    case["slices"].append({"metadata": {"name": "c"}, "spec": spec})
    case["features"].append("DRAPartitionableDevices")
    claims, state = read(case)
    verdict = choose(claims, state, policy=policy)
    assert isinstance(verdict, Chosen)
