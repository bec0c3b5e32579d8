"""What devices draw from counters: how many fit at most, and what they draw at least."""

from itertools import combinations
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.placement.bounds.packing import Packing, Want
from carina_dra.placement.cluster.knapsack import Knapsack
from tests.samples.fleet import claim, cluster, give, partitions, slices

_AMOUNTS = st.lists(st.integers(0, 5), min_size=1, max_size=6)


def _knapsack(amounts: list[int]) -> Knapsack:
    by_amount: dict[int, int] = {}
    for index, amount in enumerate(amounts):
        by_amount[amount] = by_amount.get(amount, 0) | 1 << index
    return Knapsack.of(by_amount)


def _sums(amounts: list[int], devices: int, count: int) -> list[int]:
    """What each set of so many of the devices draws."""
    among = [amount for index, amount in enumerate(amounts) if devices >> index & 1]
    return [sum(of) for of in combinations(among, count)]


@given(_AMOUNTS, st.integers(0, 63), st.integers(0, 20))
def test_most_is_the_largest_set_that_fits(amounts: list[int], devices: int, left: int) -> None:
    devices &= (1 << len(amounts)) - 1
    fitting = (
        count
        for count in range(devices.bit_count() + 1)
        if min(_sums(amounts, devices, count)) <= left
    )
    assert _knapsack(amounts).most(devices, left) == max(fitting)


@given(_AMOUNTS, st.integers(0, 63), st.integers(0, 6))
def test_least_is_what_the_smallest_draw(amounts: list[int], devices: int, count: int) -> None:
    devices &= (1 << len(amounts)) - 1
    count = min(count, devices.bit_count())
    assert _knapsack(amounts).least(devices, count) == min(_sums(amounts, devices, count))


def _device(name: str, **drawn: int) -> dict[str, object]:
    counters = {name.replace("_", "-"): {"value": str(amount)} for name, amount in drawn.items()}
    return {"name": name, "consumesCounters": [{"counterSet": "gpu", "counters": counters}]}


def _fits(totals: dict[str, int], *devices: dict[str, object], count: int | None = None) -> bool:
    """Whether all, or a number, of these devices of one counter set may fit together."""
    nodes = cluster(a=[])
    nodes.remove_slice("a-0")
    counters = {name.replace("_", "-"): {"value": str(of)} for name, of in totals.items()}
    counter_set = {"name": "gpu", "counters": counters}
    for published in slices("a", {"sharedCounters": [counter_set]}, {"devices": list(devices)}):
        nodes.put_slice(published)
    states = [nodes.pool_state(pool) for pool in nodes.offer("a").ready]
    every = (1 << len(devices)) - 1
    return Packing([every], states).has(Want(every, count or len(devices)))


_SLOTS = {"slot_0": 1, "slot_1": 1, "slot_2": 1}


@pytest.mark.parametrize("total", [3, 4])
def test_devices_that_draw_too_much_of_a_counter_do_not_fit(total: int) -> None:
    assert _fits({"memory": total}, _device("a", memory=2), _device("b", memory=2)) == (total == 4)


def test_counters_whose_names_differ_in_digits_are_summed() -> None:
    """The amounts can be taken from each of the counters alone."""
    low, high = _device("low", slot_0=1, slot_1=1), _device("high", slot_1=1, slot_2=1)
    assert not _fits(_SLOTS, low, high)
    assert _fits(_SLOTS, low, _device("last", slot_2=1))


def test_what_is_left_of_one_counter_is_not_lent_to_another() -> None:
    assert _fits({"slot": 1, "port": 9}, _device("a", slot=1), _device("b", port=9))
    assert not _fits({"slot": 1, "port": 9}, _device("a", slot=1), _device("b", slot=1))


_COUNTERS = ("slot_0", "slot_1", "port", "lane", "memory")


@given(
    st.fixed_dictionaries({name: st.integers(0, 6) for name in _COUNTERS}),
    st.lists(
        st.dictionaries(st.sampled_from(_COUNTERS), st.integers(-1, 4), min_size=1),
        min_size=2,
        max_size=6,
    ),
)
def test_devices_that_fit_together_are_never_refused(
    totals: dict[str, int], draws: list[dict[str, int]]
) -> None:
    most = max(
        count
        for count in range(len(draws) + 1)
        for chosen in combinations(draws, count)
        if all(sum(of.get(name, 0) for of in chosen) <= total for name, total in totals.items())
    )
    devices = [_device(f"d{index}", **drawn) for index, drawn in enumerate(draws)]
    assert _fits(totals, *devices, count=most or 1)


def test_counters_that_are_summed_may_be_many_with_unlike_amounts() -> None:
    """There are 20^32 sums of an amount of each counter, but only 20 devices."""
    random = Random(0)
    names = [f"slot_{index}" for index in range(32)]
    devices = [
        _device(f"d{number}", **{name: random.randint(1, 10**9) for name in names})
        for number in range(20)
    ]
    totals = dict.fromkeys(names, 2 * 10**9)
    assert not _fits(totals, *devices)
    assert _fits(totals, *devices, count=2)


def test_device_that_draws_a_negative_amount_gives_to_others() -> None:
    gives = _device("gives", memory=-2)
    assert _fits({"memory": 2}, gives, _device("a", memory=2), _device("b", memory=2))


def test_devices_in_use_leave_less_until_they_are_free_again() -> None:
    nodes = cluster(a=[])
    nodes.remove_slice("a-0")
    for published in partitions("a", 3, one=1, two=1, three=1, four=1):
        nodes.put_slice(published)

    def fit_together(count: int) -> bool:
        states = [nodes.pool_state(pool) for pool in nodes.offer("a").ready]
        return Packing([0b1110], states).has(Want(0b1110, count))

    assert fit_together(3)
    held = claim()
    assert give(nodes, held) == ["a/one"]
    assert fit_together(2)
    assert not fit_together(3)
    nodes.release(held.key)
    assert fit_together(3)
