"""The writes that turn the node's slices into the wanted pool."""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import (
    Device,
    DeviceTaint,
    ObjectMeta,
    OnNode,
    ResourcePool,
    ResourceSlice,
    ResourceSliceSpec,
    TaintEffect,
)
from kubelet_plugin.publish.pool import DeviceSlice, PublishedPool, SliceContent
from kubelet_plugin.publish.sync import SlicePlan, resource_slices, sync

DRIVER, NODE = "gpu.carina.dev", "node-1"
TAINT = DeviceTaint(key="gpu.carina.dev/lost", effect=TaintEffect.NO_SCHEDULE)
NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)


def pool(*contents: str) -> PublishedPool:
    """Gives a pool with a slice for each text and a device for each letter of it."""
    return PublishedPool(
        DRIVER,
        NODE,
        tuple(DeviceSlice(tuple(Device(letter) for letter in content)) for content in contents),
    )


def stored(of: PublishedPool, generation: int = 1) -> list[ResourceSlice]:
    """Gives the slices of a pool as the API server stores them."""
    return [
        replace(
            slice_, metadata=replace(slice_.metadata, name=f"slice-{place}", resource_version="7")
        )
        for place, slice_ in enumerate(resource_slices(of, generation))
    ]


def after(existing: Sequence[ResourceSlice], plan: SlicePlan) -> Iterator[list[ResourceSlice]]:
    """Gives the slices after each write of a plan."""
    slices = {slice_.metadata.name: slice_ for slice_ in existing}
    for slice_ in plan.update:
        assert slices[slice_.metadata.name].metadata == slice_.metadata
        slices[slice_.metadata.name] = slice_
        yield list(slices.values())
    for number, slice_ in enumerate(plan.create, start=len(slices)):
        name = f"created-{number}"
        slices[name] = replace(slice_, metadata=replace(slice_.metadata, name=name))
        yield list(slices.values())
    for slice_ in plan.delete:
        assert slices.pop(slice_.metadata.name) == slice_
        yield list(slices.values())


def applied(existing: Sequence[ResourceSlice], plan: SlicePlan) -> list[ResourceSlice]:
    return [list(existing), *after(existing, plan)][-1]


def generations(slices: Sequence[ResourceSlice]) -> set[int]:
    return {slice_.spec.pool.generation for slice_ in slices}


def names(of: ResourceSlice) -> list[str]:
    return [device.name for device in of.spec.devices]


def seen(slices: Sequence[ResourceSlice]) -> "Counter[str] | None":
    """Gives the devices that a client sees in the pool; None if it is incomplete (KEP-4381).

    A client cannot distinguish a pool without slices from a pool without devices.
    """
    in_pool = [slice_ for slice_ in slices if slice_.spec.pool.name == NODE]
    if not in_pool:
        return Counter()
    newest = max(slice_.spec.pool.generation for slice_ in in_pool)
    newest_slices = [slice_ for slice_ in in_pool if slice_.spec.pool.generation == newest]
    if all(slice_.spec.pool.resource_slice_count != len(newest_slices) for slice_ in newest_slices):
        return None
    return Counter(device.name for slice_ in newest_slices for device in slice_.spec.devices)


contents = st.sampled_from(["", "a", "b", "ab", "ba", "c"])
pools = st.lists(contents, max_size=3).map(lambda texts: pool(*texts))


@st.composite
def left_behind(draw: st.DrawFn) -> list[ResourceSlice]:
    """Gives slices that other processes, crashes and people may have left behind."""
    found = []
    for number in range(draw(st.integers(0, 5))):
        place = draw(st.integers(0, 3))
        prefix = draw(st.sampled_from([f"{place:05x}-{DRIVER}-{NODE}-", "by-hand-", ""]))
        found.append(
            ResourceSlice(
                metadata=ObjectMeta(
                    name=f"slice-{draw(st.integers(0, 9))}-{number}",
                    generate_name=prefix,
                    resource_version="7",
                ),
                spec=ResourceSliceSpec(
                    driver=DRIVER,
                    nodes=OnNode(NODE),
                    pool=ResourcePool(
                        name=draw(st.sampled_from([NODE, NODE, NODE, "other-pool"])),
                        generation=draw(st.integers(0, 2)),
                        resource_slice_count=draw(st.integers(1, 4)),
                    ),
                    devices=tuple(Device(letter) for letter in draw(contents)),
                ),
            )
        )
    return found


published = pools.flatmap(lambda of: st.integers(1, 3).map(lambda number: stored(of, number)))
states = left_behind() | published


@given(pools, states)
def test_the_writes_leave_exactly_the_slices_of_the_pool(
    wanted: PublishedPool, existing: list[ResourceSlice]
) -> None:
    left = applied(existing, sync(wanted, existing))

    if not wanted.slices:
        assert left == []
        return
    (generation,) = generations(left)
    by_index = sorted(left, key=lambda slice_: slice_.metadata.generate_name)
    expected = resource_slices(wanted, generation)
    assert [slice_.metadata.generate_name for slice_ in by_index] == [
        slice_.metadata.generate_name for slice_ in expected
    ]
    assert [slice_.spec for slice_ in by_index] == [slice_.spec for slice_ in expected]


@given(pools, states)
def test_after_the_writes_the_plan_is_empty(
    wanted: PublishedPool, existing: list[ResourceSlice]
) -> None:
    left = applied(existing, sync(wanted, existing))

    assert not sync(wanted, left)


@given(pools, states)
def test_between_the_writes_no_client_sees_other_devices(
    wanted: PublishedPool, existing: list[ResourceSlice]
) -> None:
    plan = sync(wanted, existing)

    before = seen(existing)
    right = seen(resource_slices(wanted, 1))
    views = [seen(slice_) for slice_ in after(existing, plan)]
    assert all(view in (None, before, right) for view in views)
    if before is None:
        assert all(view in (None, right) for view in views)
    changed = [index for index, view in enumerate(views) if view != before]
    if changed:  # the old pool is not seen again after it has disappeared
        assert all(view in (None, right) for view in views[changed[0] :])


@given(pools, states, st.data())
def test_an_interrupted_plan_is_completed_by_the_next(
    wanted: PublishedPool, existing: list[ResourceSlice], data: st.DataObject
) -> None:
    steps = [existing, *after(existing, sync(wanted, existing))]
    interrupted = data.draw(st.sampled_from(steps))

    again = sync(wanted, interrupted)

    assert seen(applied(interrupted, again)) == seen(resource_slices(wanted, 1))
    views = [seen(slice_) for slice_ in after(interrupted, again)]
    assert all(view in (None, seen(existing), seen(steps[-1])) for view in views)


@given(pools.filter(lambda of: bool(of.slices)), states)
def test_the_generation_stays_if_one_write_is_enough_or_the_others_only_reorder(
    wanted: PublishedPool, existing: list[ResourceSlice]
) -> None:
    plan = sync(wanted, existing)
    in_pool = [slice_ for slice_ in existing if slice_.spec.pool.name == NODE]
    newest = max(generations(in_pool), default=0)

    (generation,) = generations(applied(existing, plan))
    visible = [
        *plan.update,
        *plan.create,
        *(
            slice_
            for slice_ in plan.delete
            if slice_ in in_pool and slice_.spec.pool.generation == newest
        ),
    ]
    before = {slice_.metadata.name: names(slice_) for slice_ in existing}
    reordered = [
        slice_
        for slice_ in plan.update
        if names(slice_) != before[slice_.metadata.name]
        and sorted(names(slice_)) == sorted(before[slice_.metadata.name])
    ]
    if generation == newest:
        assert not plan.create
        assert len(visible) <= 1 + len(reordered)
    else:
        assert generation == newest + 1
        assert len(visible) > 1 or plan.create


@given(pools, states, st.randoms())
def test_the_order_in_which_slices_are_listed_does_not_matter(
    wanted: PublishedPool, existing: list[ResourceSlice], random: Random
) -> None:
    shuffled = list(existing)
    random.shuffle(shuffled)

    assert sync(wanted, shuffled) == sync(wanted, existing)


def test_a_new_pool_begins_with_generation_1() -> None:
    plan = sync(pool("a", "b"), [])

    assert (plan.update, plan.delete) == ((), ())
    assert [slice_.metadata.generate_name for slice_ in plan.create] == [
        "00000-gpu.carina.dev-node-1-",
        "00001-gpu.carina.dev-node-1-",
    ]
    assert [slice_.spec.pool for slice_ in plan.create] == [ResourcePool(NODE, 1, 2)] * 2


@pytest.mark.parametrize(
    ("before", "wanted", "updated", "created", "deleted", "generation"),
    [
        pytest.param(pool("a"), pool("a"), 0, 0, 0, 3, id="nothing"),
        pytest.param(pool("a", "b"), pool("a", "c"), 1, 0, 0, 3, id="one slice changed"),
        pytest.param(pool("a", "b"), pool("c", "d"), 2, 0, 0, 4, id="two slices changed"),
        pytest.param(pool("ab", "cd"), pool("ba", "dc"), 2, 0, 0, 3, id="two slices reordered"),
        pytest.param(pool("ab", "c"), pool("ba", "d"), 2, 0, 0, 3, id="one reordered, one changed"),
        pytest.param(pool("ab", "cd"), pool("ac", "bd"), 2, 0, 0, 4, id="devices change places"),
        pytest.param(pool("a"), pool("a", "b"), 1, 1, 0, 4, id="a slice more"),
        pytest.param(pool("a", "b"), pool("a"), 1, 0, 1, 4, id="a slice less"),
        pytest.param(pool("a"), pool(""), 1, 0, 0, 3, id="no devices any more"),
    ],
)
def test_number_of_writes(
    before: PublishedPool,
    wanted: PublishedPool,
    updated: int,
    created: int,
    deleted: int,
    generation: int,
) -> None:
    existing = stored(before, 3)

    plan = sync(wanted, existing)

    assert (len(plan.update), len(plan.create), len(plan.delete)) == (updated, created, deleted)
    assert generations(applied(existing, plan)) == {generation}


@pytest.mark.parametrize("before", [pool(""), pool("a"), pool("a", "b"), pool("", "a", "b")])
def test_a_pool_without_devices_takes_only_deletions(
    before: PublishedPool,
) -> None:
    existing = stored(before, 3)

    assert sync(pool(), existing) == SlicePlan(delete=tuple(existing))


def test_a_node_without_devices_needs_no_write() -> None:
    assert not sync(pool(), [])


def test_slices_that_would_look_complete_during_deletion_are_hidden_first() -> None:
    first, second = (
        replace(slice_, spec=replace(slice_.spec, pool=ResourcePool(NODE, 3, 1)))
        for slice_ in stored(pool("a", "b"), 3)
    )

    plan = sync(pool(), [first, second])

    (hiding,) = plan.update
    assert (hiding.spec.pool, hiding.spec.devices) == (ResourcePool(NODE, 4, 1), ())
    assert plan.delete == (second, hiding)


def test_a_slice_that_hides_others_declares_no_partition_types() -> None:
    """The API server refuses it on a slice without devices that consume counters."""
    typed = PublishedPool(
        DRIVER, NODE, (DeviceSlice((Device("a"),), f"{DRIVER}/partitionType"),) * 2
    )
    first, second = (
        replace(slice_, spec=replace(slice_.spec, pool=ResourcePool(NODE, 3, 1)))
        for slice_ in stored(typed, 3)
    )
    assert first.spec.partition_type_attribute == f"{DRIVER}/partitionType"

    (hiding,) = sync(pool(), [first, second]).update

    assert hiding.spec.partition_type_attribute is None


def test_a_changed_partition_type_attribute_is_written() -> None:
    plain, typed = (
        PublishedPool(DRIVER, NODE, (DeviceSlice((Device("a"),), attribute),))
        for attribute in (None, f"{DRIVER}/partitionType")
    )

    for before, after_ in ((plain, typed), (typed, plain)):
        (update,) = sync(after_, stored(before)).update
        (content,) = after_.slices
        assert isinstance(content, DeviceSlice)
        assert update.spec.partition_type_attribute == content.partition_type_attribute


def test_a_deleted_slice_is_created_again_with_the_next_generation() -> None:
    _, second = stored(pool("a", "b"), 3)

    plan = sync(pool("a", "b"), [second])

    assert [slice_.metadata.name for slice_ in plan.update] == [second.metadata.name]
    assert generations([*plan.update, *plan.create]) == {4}


def test_of_two_slices_with_one_index_the_first_by_name_stays() -> None:
    (first,) = stored(pool("a"))
    second = replace(first, metadata=replace(first.metadata, name="zzz"))

    assert sync(pool("a"), [second, first]) == SlicePlan(delete=(second,))


def test_a_slice_of_an_older_generation_does_not_renew_the_others() -> None:
    (old, _), existing = stored(pool("x", "y"), 2), stored(pool("a", "b"), 3)
    old = replace(old, metadata=replace(old.metadata, name="old"))

    plan = sync(pool("a", "c"), [*existing, old])

    assert (len(plan.update), plan.create, plan.delete) == (1, (), (old,))
    assert generations(plan.update) == {3}


def test_slices_of_another_pool_are_deleted() -> None:
    (ours,) = stored(pool("a"))
    other_pool = replace(ours.spec.pool, name="other", generation=9)
    other = replace(ours, spec=replace(ours.spec, pool=other_pool))

    assert sync(pool("a"), [ours, other]) == SlicePlan(delete=(other,))


def test_an_existing_taint_keeps_its_time_and_a_new_one_has_none() -> None:
    def tainted(*taints: DeviceTaint) -> PublishedPool:
        return PublishedPool(DRIVER, NODE, (DeviceSlice((Device("a", taints=taints),)),))

    existing = stored(tainted(replace(TAINT, time_added=NOON)))
    other = replace(TAINT, key="gpu.carina.dev/unreadable")

    assert not sync(tainted(TAINT), existing)
    (update,) = sync(tainted(TAINT, other), existing).update
    assert update.spec.devices[0].taints == (replace(TAINT, time_added=NOON), other)


def test_taints_in_several_slices_are_written_one_by_one_in_the_same_generation() -> None:
    healthy = pool("ab", "cd", "e")

    def tainted(content: SliceContent) -> SliceContent:
        assert isinstance(content, DeviceSlice)
        return replace(
            content,
            devices=tuple(
                replace(device, taints=(TAINT,)) if device.name in "ac" else device
                for device in content.devices
            ),
        )

    faulty = replace(healthy, slices=tuple(tainted(content) for content in healthy.slices))

    plan = sync(faulty, stored(healthy))

    assert len(plan.update) == 2
    assert not plan.create + plan.delete
    assert generations(applied(stored(healthy), plan)) == {1}


def test_unknown_fields_stay() -> None:
    (known,) = stored(pool("a"))
    (device,) = known.spec.devices
    newer = replace(
        known,
        spec=replace(
            known.spec,
            devices=(replace(device, unknown={"newField": 1}),),
            unknown={"otherField": 2},
        ),
    )

    assert not sync(pool("a"), [newer])
    (update,) = sync(pool("ab"), [newer]).update
    assert update.spec.unknown == {"otherField": 2}
    assert update.spec.devices == (replace(device, unknown={"newField": 1}), Device("b"))


@pytest.mark.parametrize("length", [1, 50, 253])
def test_names_of_slices_are_valid_for_any_node_name(length: int) -> None:
    (only,) = resource_slices(replace(pool("a"), node="n" * length), 1)

    prefix = only.metadata.generate_name
    assert len(prefix) <= 248
    assert prefix.startswith("00000-gpu.carina.dev-n")
    assert prefix.endswith("n-")
