"""The order of devices by a policy. The GPUs are H100s, each with 25 partitions."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.quantity import Quantity
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.order import DeviceOrder, free_in_order, groups
from kubelet_plugin.devices.partition import Partition
from kubelet_plugin.devices.room import DeviceUse
from kubelet_plugin.inventory.inventory import DriverReady
from simulation.nvml.state import GpuInstance
from tests.samples.mig_models import MODELS, observed_with

MODEL = MODELS["h100-sxm5-80gb"]
POLICIES = (DeviceOrder.BINPACK, DeviceOrder.SPREAD, DeviceOrder.FRAGMENTATION)
MIB = 45 * 1024


def node(gpus: int, *instances: GpuInstance) -> tuple[GpuDevice, ...]:
    """A node whose last GPU has an administrator's instances."""
    idle = [observed_with(MODEL, (), minor) for minor in range(gpus - 1)]
    return devices(DriverReady((*idle, observed_with(MODEL, instances, gpus - 1))))


def uses(*held: str) -> list[DeviceUse]:
    """Devices that are held; a share as `gpu-0-share=25` with so much percent of its GPU."""
    found = []
    for text in held:
        name, _, percent = text.partition("=")
        memory = Quantity.of(MIB * int(percent or 0) // 100 * 2**20)
        consumed = {"memory": memory, "cores": Quantity.of(int(percent or 0))}
        found.append(DeviceUse(name, consumed if percent else {}))
    return found


def first(
    of: Sequence[GpuDevice], held: Sequence[str], policy: DeviceOrder, part: str
) -> list[str]:
    """The names with this part, in the order of the policy."""
    return [name for name in free_in_order(of, uses(*held), policy) if part in f"{name}."]


FOUR = node(4)


def test_without_a_policy_no_device_comes_first_and_all_are_one_group() -> None:
    assert free_in_order(FOUR, uses("gpu-0"), DeviceOrder.NONE) == ()
    assert groups(FOUR, DeviceOrder.NONE) == (FOUR,)


@pytest.mark.parametrize("policy", POLICIES)
def test_groups_are_kinds_and_sizes_from_small_to_large(policy: DeviceOrder) -> None:
    found = groups(FOUR, policy)

    assert [(group[0].kind, len(group)) for group in found] == [
        ("gpu", 4),
        ("share", 4),
        *(("mig", 4 * placements) for placements in (7, 7, 4, 3, 2, 1, 1)),
        ("monitor", 4),
    ]
    memory = [one.profile.size for group in found for one in group if isinstance(one, Partition)]
    assert memory == sorted(memory)


@pytest.mark.parametrize(
    ("policy", "held", "part", "expected"),
    [
        # Shares: the fullest with room, or the emptiest.
        ("binpack", ["gpu-1-share=10", "gpu-2-share=30", "gpu-3-share=100"], "-share", [2, 1, 0]),
        ("fragmentation", ["gpu-1-share=10", "gpu-2-share=30", "gpu-3"], "-share", [2, 1, 0]),
        ("spread", ["gpu-1-share=10", "gpu-2-share=30", "gpu-3"], "-share", [0, 1, 2]),
        ("binpack", ["gpu-2-share=30", "gpu-2-share=20", "gpu-1-share=40"], "-share", [2, 1, 0, 3]),
        # Whole GPUs: those that are idle, all equal.
        ("binpack", ["gpu-1-share=1", "gpu-2-mig-1g10gb-19-6"], ".", [0, 3]),
        ("spread", ["gpu-1"], ".", [0, 2, 3]),
        # The only 4g of each GPU: on the fullest, the emptiest, or the one that cannot be whole.
        ("binpack", ["gpu-1-mig-1g10gb-19-0", "gpu-3-mig-2g20gb-14-0"], "-4g40gb", [0, 2]),
        ("binpack", ["gpu-1-mig-1g10gb-19-6", "gpu-3-mig-2g20gb-14-4"], "-4g40gb", [3, 1, 0, 2]),
        ("spread", ["gpu-1-mig-1g10gb-19-6", "gpu-3-mig-2g20gb-14-4"], "-4g40gb", [0, 2, 1, 3]),
        ("fragmentation", ["gpu-1-mig-1g10gb-19-6", "gpu-3"], "-4g40gb", [1, 0, 2]),
    ],
)
def test_gpus_are_ordered_by_the_policy(
    policy: str, held: list[str], part: str, expected: list[int]
) -> None:
    names = first(FOUR, held, DeviceOrder(policy), part)

    found = [int(name.split("-")[1]) for name in names if part != "." or name.count("-") == 1]
    assert found == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        pytest.param("binpack", "gpu-2-mig-1g10gb-19-3", id="the fullest GPU"),
        pytest.param("spread", "gpu-0-mig-1g10gb-19-6", id="the emptiest GPU"),
        pytest.param("fragmentation", "gpu-1-mig-1g10gb-19-5", id="what no large one can use"),
    ],
)
def test_policies_differ_in_the_gpu_of_a_small_partition(policy: str, expected: str) -> None:
    held = ["gpu-1-mig-1g10gb-19-6", "gpu-2-mig-3g40gb-9-4"]

    assert first(FOUR, held, DeviceOrder(policy), "-1g10gb-19-")[0] == expected


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("binpack", ["0-1g10gb-19-6", "0-1g10gb-19-5", "0-1g10gb-19-4", "0-1g10gb-19-3"]),
        ("fragmentation", ["0-1g10gb-19-6", "0-1g10gb-19-5", "0-1g10gb-19-4", "0-1g10gb-19-3"]),
        ("spread", ["0-1g10gb-19-6", "1-1g10gb-19-6", "2-1g10gb-19-6", "3-1g10gb-19-6"]),
    ],
)
def test_a_burst_of_equal_claims_follows_the_policy(policy: str, expected: list[str]) -> None:
    names = first(FOUR, [], DeviceOrder(policy), "-1g10gb-19-")

    assert [name.removeprefix("gpu-").replace("mig-", "") for name in names[:4]] == expected
    assert len(names) == 28


@pytest.mark.parametrize("policy", POLICIES)
def test_on_a_gpu_the_partition_comes_first_that_rules_out_the_fewest_large_ones(
    policy: DeviceOrder,
) -> None:
    assert first(node(1), [], policy, "-1g10gb-19-")[0].endswith("-6")
    assert first(node(1), [], policy, "-3g40gb-")[0].endswith("-4")  # 4g fits at 0 only
    held = ["gpu-0-mig-3g40gb-9-4", "gpu-0-mig-1g10gb-19-0"]
    assert first(node(1), held, policy, "-1g10gb-19-")[0].endswith("-1")


def test_fragmentation_prefers_what_an_administrator_made() -> None:
    made = node(2, GpuInstance(1, 0, 2, 1))

    assert first(made, [], DeviceOrder.FRAGMENTATION, "-1g10gb-19-")[:2] == [
        "gpu-1-mig-1g10gb-19-2",  # it exists whoever uses it
        "gpu-1-mig-1g10gb-19-3",  # beside it, no large one fits
    ]


def test_devices_that_fit_only_instead_of_others_come_last_in_their_group() -> None:
    names = first(node(2), [], DeviceOrder.BINPACK, "-1g10gb-me-")  # each needs the only OFA engine

    assert names[:2] == ["gpu-0-mig-1g10gb-me-20-6", "gpu-1-mig-1g10gb-me-20-6"]
    assert len(names) == 14


TWO = node(2)
CHOICES = st.lists(st.integers(0, 10**6), max_size=8)
policies = st.sampled_from(POLICIES)


def reached(choices: Sequence[int], policy: DeviceOrder) -> list[str]:
    """Devices of TWO that claims can hold together."""
    held: list[str] = []
    for choice in choices:
        names = free_in_order(TWO, uses(*held), policy)
        if names:
            name = names[choice % len(names)]
            held.append(f"{name}={1 + choice % 30}" if name.endswith("-share") else name)
    return held


@given(CHOICES, policies)
def test_each_free_device_is_there_once_by_groups(choices: list[int], policy: DeviceOrder) -> None:
    held = reached(choices, policy)

    names = free_in_order(TWO, uses(*held), policy)

    others = [free_in_order(TWO, uses(*held), other) for other in POLICIES]
    group_of = {one.name: rank for rank, group in enumerate(groups(TWO, policy)) for one in group}
    assert len(set(names)) == len(names)
    assert all(set(names) == set(other) for other in others)
    assert sorted(names, key=group_of.__getitem__) == list(names)


@given(CHOICES, policies, st.integers(0, 6))
def test_a_burst_gets_what_a_new_order_after_each_claim_would_give(
    choices: list[int], policy: DeviceOrder, which: int
) -> None:
    held = reached(choices, policy)
    part = ("1g10gb-19-", "1g10gb-me", "1g20gb-", "2g20gb-", "3g40gb-", "4g40gb-", "7g80gb-")[which]

    burst = first(TWO, held, policy, part)
    while burst:
        now = first(TWO, held, policy, part)
        burst = [name for name in burst if name in now]  # as the scheduler skips what does not fit
        assert burst[:1] == now[:1]
        held += burst[:1]


@given(CHOICES, policies)
def test_the_order_in_which_claims_were_recorded_does_not_matter(
    choices: list[int], policy: DeviceOrder
) -> None:
    held = reached(choices, policy)

    one, other = uses(*held), uses(*reversed(held))
    assert free_in_order(TWO, one, policy) == free_in_order(TWO, other, policy)
