"""How the devices of published slices are arranged."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import CounterSet, Device, ResourceSlice
from kubelet_plugin.publish.arrangement import arranged
from kubelet_plugin.publish.pool import CounterSlice, DeviceSlice, PublishedPool
from kubelet_plugin.publish.sync import resource_slices, sync


def pool(*contents: str) -> PublishedPool:
    """A pool with a slice for each text and a device for each letter of it."""
    slices = tuple(DeviceSlice(tuple(map(Device, content))) for content in contents)
    return PublishedPool("gpu.carina.dev", "node-1", slices)


def published(*contents: str) -> tuple[ResourceSlice, ...]:
    return resource_slices(pool(*contents), 3)


def arrange(
    of: PublishedPool, first: str, existing: Sequence[ResourceSlice] = (), *, keep: bool = False
) -> list[str]:
    return [
        "".join(device.name for device in content.devices)
        for content in arranged(of, first, existing, keep=keep).slices
        if isinstance(content, DeviceSlice)
    ]


@pytest.mark.parametrize("keep", [False, True])
def test_new_slices_have_the_first_devices_first_and_the_others_as_they_are(keep: bool) -> None:
    assert arrange(pool("abc", "de"), "ecb", keep=keep) == ["cba", "ed"]


def test_counter_sets_stay_as_they_are() -> None:
    counters = CounterSlice((CounterSet("gpu-0", {}),))
    of = replace(pool("ab"), slices=(counters, *pool("ab").slices))

    assert arranged(of, "ba", (), keep=False).slices == (counters, *pool("ba").slices)


def test_slices_declare_the_types_that_they_declared_before() -> None:
    (content,) = pool("ab").slices
    assert isinstance(content, DeviceSlice)
    typed = replace(content, partition_type_attribute="gpu.carina.dev/partitionType")

    (first, *_) = arranged(replace(pool("ab"), slices=(typed,)), "ba", (), keep=False).slices

    assert isinstance(first, DeviceSlice)
    assert first.partition_type_attribute == typed.partition_type_attribute
    assert [device.name for device in first.devices] == ["b", "a"]


@pytest.mark.parametrize(
    ("first", "keep", "expected"),
    [
        pytest.param("ca", False, "bca", id="only the order of the first matters"),
        pytest.param("ac", False, "acb", id="it is another"),
        pytest.param("ac", True, "bca", id="it is kept"),
        pytest.param("", False, "bca", id="no device is free"),
    ],
)
def test_an_order_that_serves_stays(first: str, keep: bool, expected: str) -> None:
    assert arrange(pool("abc"), first, published("bca"), keep=keep) == [expected]


def test_a_slice_with_other_devices_is_arranged_also_if_orders_are_kept() -> None:
    assert arrange(pool("abc", "d"), "cba", published("ab", "d"), keep=True) == ["cba", "d"]


def test_the_newest_of_several_slices_with_the_same_devices_counts() -> None:
    newest = resource_slices(pool("ba"), 4)
    for existing in ((*published("ab"), *newest), (*newest, *published("ab"))):
        assert arrange(pool("ab"), "ab", existing, keep=True) == ["ba"]


def test_a_slice_with_a_device_twice_has_no_order_to_keep() -> None:
    assert arrange(pool("ab"), "ab", published("bab"), keep=True) == ["ab"]


def test_a_slice_whose_devices_changed_keeps_its_order_with_the_new_content() -> None:
    tainted = Device("a", allow_multiple_allocations=True)
    of = replace(pool(), slices=(DeviceSlice((tainted, Device("b"))),))

    assert arranged(of, "ab", published("ba"), keep=True).slices == (
        DeviceSlice((Device("b"), tainted)),
    )


@given(st.permutations("abcde"), st.permutations("abcde"), st.integers(0, 5))
def test_the_first_devices_follow_their_order_and_a_second_time_nothing_is_written(
    names: list[str], present: list[str], number: int
) -> None:
    first = "".join(names[:number])
    (made,) = arrange(pool("abcde"), first, published("".join(present)))

    assert [name for name in made if name in first] == list(first)
    assert sorted(made) == list("abcde")
    existing = published(made)
    assert not sync(arranged(pool("abcde"), first, existing, keep=False), existing)
