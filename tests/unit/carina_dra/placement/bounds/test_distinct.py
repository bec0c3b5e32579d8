"""Devices that must differ: nodes are refused where values are too few, never otherwise."""

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from carina_dra.allocator.allocate import Allocated, allocate
from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.placement.bounds.demand import Demand, Short
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import ResourceClaim
from tests.samples.fleet import DRIVER, claim_of, cluster, model_is, request, slices

_Values = Sequence[Any]
"""The values of a device of `left`, `right` and `side`; None for none."""
_NAMES = "left", "right", "side"


def _device(name: str, values: _Values, model: str = "H200") -> dict[str, Any]:
    attributes: dict[str, Any] = {"model": {"string": model}}
    for attribute, value in zip(_NAMES, values, strict=False):
        if value is not None:
            attributes[attribute] = {"ints" if isinstance(value, list) else "int": value}
    return {"name": name, "attributes": attributes}


def _nodes(*devices: _Values) -> Cluster:
    return cluster(a=[_device(f"g{n}", values) for n, values in enumerate(devices)])


def _apart(
    *attributes: str, counts: Sequence[int] = (1,), match: str | None = None
) -> ResourceClaim:
    """As many devices for each request; all of them differ in the attributes.

    They have the value of another in common, if there is one to `match`.
    """
    requests = [
        {"name": f"r{n}", "exactly": {"deviceClassName": "gpu", "count": count}}
        for n, count in enumerate(counts)
    ]
    constraints = [_distinct(name) for name in attributes]
    if match is not None:
        constraints.append({"matchAttribute": f"{DRIVER}/{match}"})
    return claim_of(*requests, constraints=constraints)


def _distinct(attribute: str, *requests: str) -> dict[str, Any]:
    meant = {"requests": [*requests]} if requests else {}
    return {"distinctAttribute": f"{DRIVER}/{attribute}", **meant}


def _is_refused(of: Cluster, asked: ResourceClaim) -> bool:
    states = [of.pool_state(pool) for pool in of.offer("a").ready]
    demand = Demand(request(asked, features=of.features).claims, of.features)
    found = demand.bound(of.offer("a"), states, is_whole=True, wish=True)
    return isinstance(found, Short)


def _is_possible(of: Cluster, asked: ResourceClaim) -> bool:
    claims = request(asked, features=of.features).claims
    answer = allocate(claims, of.state("a"), new_share_id=lambda: "share")
    return isinstance(answer, Allocated)


def test_more_devices_than_there_are_values_are_refused_without_counting_to_them() -> None:
    """A controller that made a value for each of them had no memory left."""
    assert _is_refused(_nodes([0], [1]), _apart("left", counts=(2**31 - 1,)))


_COUNTS = pytest.mark.parametrize("counts", [(3,), (1, 1, 1), (2, 1)], ids=str)


@_COUNTS
def test_devices_need_as_many_values(counts: Sequence[int]) -> None:
    asked = _apart("left", counts=counts)
    for nodes, is_possible in ((_nodes([0], [1], [1]), False), (_nodes([0], [1], [2]), True)):
        assert _is_possible(nodes, asked) == is_possible
        assert _is_refused(nodes, asked) != is_possible


@_COUNTS
def test_devices_that_differ_in_two_attributes_need_as_many_pairs_of_values(
    counts: Sequence[int],
) -> None:
    """Each attribute has three values, but two values of one go with the same of the other."""
    crossing = (0, 0), (1, 0), (2, 0), (2, 1), (2, 2)
    asked = _apart("left", "right", counts=counts)
    assert _is_refused(_nodes(*crossing), asked)
    assert not _is_possible(_nodes(*crossing), asked)
    assert not _is_refused(_nodes(*crossing, (1, 1)), asked)
    assert _is_possible(_nodes(*crossing, (1, 1)), asked)


def test_pairs_of_values_are_needed_only_by_requests_of_both_constraints() -> None:
    nodes = _nodes((0, 0), (0, 1), (1, 0))
    constraints = [_distinct("left", "r0", "r1"), _distinct("right", "r1", "r2")]
    names = "r0", "r1", "r2"
    asked = claim_of(
        *({"name": name, "exactly": {"deviceClassName": "gpu"}} for name in names),
        constraints=constraints,
    )
    assert _is_possible(nodes, asked)
    assert not _is_refused(nodes, asked)
    both = _apart("left", "right", counts=(1, 1, 1))
    assert _is_refused(nodes, both)
    assert not _is_possible(nodes, both)


@_COUNTS
def test_devices_that_match_need_the_values_among_themselves(counts: Sequence[int]) -> None:
    asked = _apart("left", counts=counts, match="side")
    apart = (0, None, 0), (1, None, 0), (2, None, 1), (2, None, 1)
    assert _is_refused(_nodes(*apart), asked)
    assert not _is_possible(_nodes(*apart), asked)
    assert not _is_refused(_nodes(*apart, (3, None, 0)), asked)
    assert _is_possible(_nodes(*apart, (3, None, 0)), asked)


@_COUNTS
def test_devices_that_match_need_the_pairs_of_values_among_themselves(
    counts: Sequence[int],
) -> None:
    """On one side all devices have one of two values; on the other are too few."""
    asked = _apart("left", "right", counts=counts, match="side")
    apart = (0, 0, 0), (1, 0, 0), (2, 0, 0), (2, 1, 0), (2, 2, 0), (0, 0, 1), (1, 1, 1)
    assert _is_refused(_nodes(*apart), asked)
    assert not _is_possible(_nodes(*apart), asked)
    assert not _is_refused(_nodes(*apart, (2, 2, 1)), asked)
    assert _is_possible(_nodes(*apart, (2, 2, 1)), asked)


def test_devices_of_a_request_that_need_not_match_may_differ_from_elsewhere() -> None:
    constraints = [
        {"matchAttribute": f"{DRIVER}/side", "requests": ["r0", "r1"]},
        _distinct("left"),
    ]
    requests = [{"name": f"r{n}", "exactly": {"deviceClassName": "gpu"}} for n in range(3)]
    nodes = _nodes((0, None, 0), (1, None, 0), (2, None, 1))
    some = claim_of(*requests, constraints=constraints)
    assert _is_possible(nodes, some)
    assert not _is_refused(nodes, some)
    every = _apart("left", counts=(1, 1, 1), match="side")
    assert not _is_possible(nodes, every)
    assert _is_refused(nodes, every)


def test_each_request_needs_a_value_of_its_own_devices() -> None:
    """Two requests can have devices of one value only."""
    devices = [_device(f"g{n}", [n // 2], model="A100" if n < 2 else "H200") for n in range(6)]
    selectors = [[{"cel": {"expression": model_is(model)}}] for model in ("A100", "H200")]

    def asked(*chosen: int) -> ResourceClaim:
        return claim_of(
            *(
                {"name": f"r{n}", "exactly": {"deviceClassName": "gpu", "selectors": selectors[of]}}
                for n, of in enumerate(chosen)
            ),
            constraints=[_distinct("left")],
        )

    nodes = cluster(a=devices)
    assert _is_refused(nodes, asked(0, 0, 1))
    assert not _is_possible(nodes, asked(0, 0, 1))
    assert not _is_refused(nodes, asked(1, 0, 1))
    assert _is_possible(nodes, asked(1, 0, 1))


def test_only_one_device_may_have_no_value_that_can_be_compared() -> None:
    """Lists cannot be compared without their feature."""
    nodes = _nodes(([0], 0), ([1], 1), (2, 2))
    assert not _is_refused(nodes, _apart("left", "right", counts=(2,)))
    assert _is_possible(nodes, _apart("left", "right", counts=(2,)))
    assert _is_refused(nodes, _apart("left", "right", counts=(3,)))
    assert not _is_possible(nodes, _apart("left", "right", counts=(3,)))


def test_device_without_the_attribute_does_not_count() -> None:
    assert _is_refused(_nodes([0], [None]), _apart("left", counts=(2,)))
    assert not _is_possible(_nodes([0], [None]), _apart("left", counts=(2,)))
    assert _is_refused(_nodes([None]), _apart("left"))
    assert not _is_possible(_nodes([None]), _apart("left"))
    assert _is_possible(_nodes([0]), _apart("left"))
    assert not _is_refused(_nodes([0]), _apart("left"))


_VALUE = st.none() | st.integers(0, 3) | st.lists(st.integers(0, 3), max_size=2, unique=True)
_DEVICES = st.lists(st.tuples(_VALUE, _VALUE, _VALUE), min_size=1, max_size=6)


@settings(max_examples=300, deadline=None)
@given(
    _DEVICES,
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.sampled_from(_NAMES), min_size=1, max_size=3),
    st.none() | st.sampled_from(_NAMES),
    st.booleans(),
)
def test_node_with_the_devices_is_not_refused(
    devices: Sequence[_Values],
    counts: Sequence[int],
    attributes: Sequence[str],
    match: str | None,
    lists: bool,
) -> None:
    nodes = Cluster(Features(list_attributes=lists))
    nodes.put_node(Node("a"))
    published = [_device(f"g{n}", values) for n, values in enumerate(devices)]
    for one in slices("a", {"devices": published}):
        nodes.put_slice(one)
    asked = _apart(*attributes, counts=counts, match=match)
    if _is_possible(nodes, asked):
        assert not _is_refused(nodes, asked)


@settings(max_examples=200, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3)), min_size=1, max_size=8),
    st.integers(1, 4),
)
def test_node_is_refused_exactly_if_it_has_too_few_pairs_of_values(
    devices: Sequence[_Values], count: int
) -> None:
    nodes, asked = _nodes(*devices), _apart("left", "right", counts=(count,))
    assert _is_refused(nodes, asked) != _is_possible(nodes, asked)
