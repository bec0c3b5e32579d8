"""A bound of what devices of a pool give together, compared with every set of them."""

from itertools import chain, combinations

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.features import DEFAULT_FEATURES
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate, ReadyPool
from carina_dra.placement.bounds.most_together import most_capacity, most_claims
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from tests.samples.fleet import DRIVER, slices

_MEMORY = f"{DRIVER}/memory"
_DRAWN = st.tuples(st.integers(0, 4), st.integers(0, 4))
"""What a device draws of two counters."""
_DEVICES = st.lists(st.tuples(_DRAWN, st.integers(0, 9)), min_size=1, max_size=6)
"""What devices draw, with the memory that they have."""


def _pool(devices: list[tuple[tuple[int, int], int]], totals: tuple[int, int]) -> ReadyPool:
    def counters(amounts: tuple[int, int]) -> dict[str, object]:
        return {f"c{index}": {"value": str(amount)} for index, amount in enumerate(amounts)}

    published = [
        {
            "name": f"d{index}",
            "capacity": {"memory": {"value": str(memory)}},
            "consumesCounters": [{"counterSet": "gpu", "counters": counters(drawn)}],
        }
        for index, (drawn, memory) in enumerate(devices)
    ]
    nodes = Cluster()
    nodes.put_node(Node("a"))
    counter_set = {"name": "gpu", "counters": counters(totals)}
    for one in slices("a", {"sharedCounters": [counter_set]}, {"devices": published}):
        nodes.put_slice(one)
    (pool,) = nodes.state("a").ready
    return pool


def _possible(
    devices: list[tuple[tuple[int, int], int]], totals: tuple[int, int]
) -> list[list[int]]:
    """The indices of devices that fit together."""
    subsets = chain.from_iterable(
        combinations(range(len(devices)), count) for count in range(len(devices) + 1)
    )
    return [
        list(subset)
        for subset in subsets
        if all(
            sum(devices[index][0][counter] for index in subset) <= totals[counter]
            for counter in (0, 1)
        )
    ]


def _claims(pool: ReadyPool, devices: tuple[Candidate, ...]) -> int:
    return most_claims(devices, pool, features=DEFAULT_FEATURES)


def _memory(pool: ReadyPool) -> int:
    amount = most_capacity(pool.devices, pool, capacity=_MEMORY, features=DEFAULT_FEATURES)
    return amount // Quantity.of(1).nanos


@given(_DEVICES, _DRAWN)
def test_bounds_are_of_devices_that_fit_together(
    devices: list[tuple[tuple[int, int], int]], totals: tuple[int, int]
) -> None:
    pool, possible = _pool(devices, totals), _possible(devices, totals)
    memory = [sum(devices[index][1] for index in subset) for subset in possible]
    assert _claims(pool, pool.devices) <= max(map(len, possible))
    assert _memory(pool) in memory


@given(_DEVICES, _DRAWN)
def test_bounds_are_not_below_those_of_a_single_device(
    devices: list[tuple[tuple[int, int], int]], totals: tuple[int, int]
) -> None:
    pool, possible = _pool(devices, totals), _possible(devices, totals)
    alone = [subset[0] for subset in possible if len(subset) == 1]
    assert _claims(pool, pool.devices) >= bool(alone)
    assert _memory(pool) >= max((devices[index][1] for index in alone), default=0)


@given(_DRAWN, st.integers(1, 6), st.integers(0, 9), _DRAWN)
def test_bounds_of_alike_devices_are_exact(
    drawn: tuple[int, int], number: int, memory: int, totals: tuple[int, int]
) -> None:
    devices = [(drawn, memory)] * number
    pool, most = _pool(devices, totals), max(map(len, _possible(devices, totals)))
    assert _claims(pool, pool.devices) == most
    assert _memory(pool) == most * memory


@given(_DEVICES, _DRAWN)
def test_only_the_given_devices_count(
    devices: list[tuple[tuple[int, int], int]], totals: tuple[int, int]
) -> None:
    pool = _pool(devices, totals)
    assert _claims(pool, ()) == 0
    assert _claims(pool, pool.devices[:1]) == ([0] in _possible(devices, totals))
