"""When the devices of a node are put into a new order."""

import math

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import ResourceSlice
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.order import DeviceOrder, free_in_order
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.room import DeviceUse
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.publish.ordering import Ordering, WantedOrder
from kubelet_plugin.publish.pool import DeviceSlice, SliceContent, pool
from kubelet_plugin.publish.sync import resource_slices, sync
from tests.samples.gpus import share
from tests.samples.mig_models import MODELS, observed_with

ONE, TWO = DeviceUse("gpu-1"), DeviceUse("gpu-2")


def ordering(order: DeviceOrder = DeviceOrder.BINPACK) -> Ordering:
    return Ordering(order, seconds=10)


def write(of: Ordering, now: float) -> None:
    wanted = of.wanted(now)
    assert not wanted.keep
    of.published(wanted, now, written=True)


def test_the_present_order_stays_until_it_is_known_what_is_used() -> None:
    new = ordering()
    assert new.due == math.inf
    assert new.wanted(100).keep

    new.use([])
    assert not new.wanted(100).keep


def test_a_change_is_due_at_once_and_then_the_order_stays() -> None:
    one = ordering()
    one.use([ONE])
    assert one.due <= 100
    write(one, 100)
    assert one.due == math.inf
    assert one.wanted(1000).keep


def test_uses_that_are_again_as_before_are_due_since_another_plugin_may_have_ordered() -> None:
    one = ordering()
    one.use([ONE])
    write(one, 100)
    one.use([ONE, TWO])
    one.use([ONE])
    assert one.due == 110
    write(one, 110)
    one.use([ONE])
    assert one.due == math.inf


def test_the_next_change_waits_after_a_write() -> None:
    busy = ordering()
    busy.use([ONE])
    write(busy, 100)
    busy.use([ONE, TWO])
    assert busy.due == 110
    assert busy.wanted(109.9).keep
    busy.use([TWO])
    assert busy.due == 110
    write(busy, 110)
    assert busy.due == math.inf


def test_a_change_that_needs_no_write_delays_no_other() -> None:
    idle = ordering()
    idle.use([ONE])
    idle.published(idle.wanted(100), 100, written=False)
    idle.use([TWO])
    assert idle.due <= 100


def test_a_change_during_a_write_is_not_lost() -> None:
    racing = ordering()
    racing.use([ONE])
    wanted = racing.wanted(100)
    racing.use([TWO])
    racing.published(wanted, 100, written=True)
    assert racing.due == 110


def test_a_write_for_another_reason_is_no_new_order() -> None:
    waiting = ordering()
    waiting.use([ONE])
    write(waiting, 100)
    waiting.use([TWO])
    waiting.published(waiting.wanted(105), 105, written=True)
    assert waiting.due == 110


def test_when_the_last_claim_ends_the_order_is_that_of_an_idle_node() -> None:
    ended = ordering()
    ended.use([ONE])
    write(ended, 100)
    ended.use([])
    assert ended.wanted(110) == WantedOrder((), keep=False)


H100S = devices(
    DriverReady(tuple(observed_with(MODELS["h100-sxm5-80gb"], (), minor) for minor in range(3)))
)
USES = st.lists(
    st.sampled_from([*(device.name for device in H100S), "gpu-1-vfio", "gpu-9"]).map(DeviceUse),
    max_size=6,
)


@given(USES, USES, st.sampled_from(DeviceOrder))
def test_whatever_claims_use_slices_keep_their_devices_and_a_second_time_nothing_is_written(
    before: list[DeviceUse], uses: list[DeviceUse], order: DeviceOrder
) -> None:
    wanted = pool(H100S, PublishSettings("gpu.carina.dev"), node="node-1", order=order)
    one = ordering(order)
    existing: tuple[ResourceSlice, ...] = ()
    for now in (before, uses):
        want = WantedOrder(tuple(now), keep=False)
        made = one.arrange(wanted, H100S, existing, want)
        existing = resource_slices(made, 1)

        for content, other in zip(made.slices, wanted.slices, strict=True):
            assert sorted(names_of(content)) == sorted(names_of(other))
        listed = [name for content in made.slices for name in names_of(content)]
        free = free_in_order(H100S, now, order)
        assert [name for name in listed if name in free] == list(free)
        assert not sync(one.arrange(wanted, H100S, existing, want), existing)


def names_of(content: SliceContent) -> list[str]:
    return [one.name for one in content.devices] if isinstance(content, DeviceSlice) else []


def test_without_a_policy_nothing_is_due_and_the_order_of_the_devices_is_restored() -> None:
    none = ordering(DeviceOrder.NONE)
    none.use([ONE])
    assert none.due == math.inf

    shares = (share(0), share(1))
    wanted = pool(shares, PublishSettings("gpu.carina.dev"), node="node-1")
    reversed_ = pool(shares[::-1], PublishSettings("gpu.carina.dev"), node="node-1")
    existing = resource_slices(reversed_, 1)
    assert none.arrange(wanted, shares, existing, none.wanted(100)) == wanted
