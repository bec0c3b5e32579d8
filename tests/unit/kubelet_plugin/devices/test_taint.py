"""The taints of a device with problems."""

import pytest

from carina_dra.nvidia.nvml_failure import NvmlFailure
from carina_dra.resource import DeviceTaint, TaintEffect, limits
from kubelet_plugin.devices.publish_settings import DEFAULT_EVICT
from kubelet_plugin.devices.taint import (
    compute_mode_taints,
    held_mode_taints,
    released_taint,
    repair_taints,
    taints,
)
from kubelet_plugin.inventory.compute_mode import PREVENTS_ALL, PREVENTS_SHARES, ComputeMode
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    PROBLEMS,
    Degraded,
    Draining,
    DriverVerdict,
    EvictionCause,
    FabricFailed,
    FoundByDriver,
    GpuProblem,
    MemoryFailed,
    NeedsReboot,
    NeedsReset,
)
from kubelet_plugin.inventory.held_mode import HeldMode, Switch
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from tests.samples.gpus import LOST, NOTICED, UNREADABLE

DRIVER = "gpu.carina.dev"
SITE = MigSite(9, MigPlacement(0, 4))


def problem(kind: type[FoundByDriver], reason: str, site: MigSite | None = None) -> FoundByDriver:
    return kind(DriverVerdict(reason, "has reported something"), NOTICED, site)


@pytest.mark.parametrize(
    ("found", "effect"),
    [
        (LOST, TaintEffect.NO_EXECUTE),
        (problem(NeedsReset, "recovery-action-1"), TaintEffect.NO_EXECUTE),
        (problem(NeedsReset, "recovery-action-6"), TaintEffect.NO_EXECUTE),
        (problem(NeedsReset, "xid-95"), TaintEffect.NO_EXECUTE),
        (problem(NeedsReboot, "recovery-action-2"), TaintEffect.NO_SCHEDULE),
        (problem(Draining, "recovery-action-4"), TaintEffect.NO_SCHEDULE),
        (problem(MemoryFailed, "row-remap-failure"), TaintEffect.NO_SCHEDULE),
        (problem(FabricFailed, "fabric-unhealthy"), TaintEffect.NO_SCHEDULE),
        (UNREADABLE, TaintEffect.NO_SCHEDULE),
        (problem(Degraded, "row-remap-pending"), TaintEffect.NONE),
    ],
    ids=lambda value: f"{value.state}-{value.reason}" if not isinstance(value, TaintEffect) else "",
)
def test_the_key_is_the_state_and_the_value_the_reason(
    found: GpuProblem, effect: TaintEffect
) -> None:
    assert taints(frozenset({found}), DRIVER, DEFAULT_EVICT) == (
        DeviceTaint(f"{DRIVER}/{found.state}", effect, found.reason, found.since),
    )


@pytest.mark.parametrize(
    ("evict", "evicting"),
    [
        ((), set()),
        ((EvictionCause.LOST,), {"lost"}),
        ((EvictionCause.RESET,), {"needs-reset"}),
        ((EvictionCause.BUS_RESET,), set()),
        ((EvictionCause.REBOOT,), {"needs-reboot"}),
        (tuple(EvictionCause), {"lost", "needs-reset", "needs-reboot"}),
    ],
)
def test_the_setting_says_whose_pods_are_evicted(
    evict: tuple[EvictionCause, ...], evicting: set[str]
) -> None:
    problems = frozenset({LOST, UNREADABLE, *(problem(kind, "some") for kind in FOUND_BY_DRIVER)})

    executed = {
        taint.key.removeprefix(f"{DRIVER}/")
        for taint in taints(problems, DRIVER, evict)
        if taint.effect is TaintEffect.NO_EXECUTE
    }
    assert executed == evicting


def test_a_bus_reset_has_a_word_of_its_own() -> None:
    (taint,) = taints(
        frozenset({problem(NeedsReset, "recovery-action-6")}), DRIVER, {EvictionCause.RESET}
    )
    assert taint.effect is TaintEffect.NO_SCHEDULE


def test_all_problems_at_once_are_within_the_limits_and_each_key_once() -> None:
    problems = frozenset(
        {
            LOST,
            UNREADABLE,
            *(problem(kind, "some") for kind in FOUND_BY_DRIVER),
            *(problem(kind, "other", SITE) for kind in FOUND_BY_DRIVER),
        }
    )
    keys = [taint.key for taint in taints(problems, DRIVER, DEFAULT_EVICT)]

    assert keys == [f"{DRIVER}/{kind.state}" for kind in PROBLEMS]
    assert len(keys) <= limits.TAINTS_PER_DEVICE


def test_the_problem_of_the_whole_gpu_counts_before_that_of_an_instance() -> None:
    problems = frozenset(
        {problem(Draining, "recovery-action-4"), problem(Draining, "xid-94", SITE)}
    )
    (taint,) = taints(problems, DRIVER, DEFAULT_EVICT)
    assert taint.value == "recovery-action-4"


def test_a_taint_says_since_when_in_whole_seconds() -> None:
    """Slices that the kubelet deletes at its start would have the taint dated anew."""
    since = NOTICED.replace(microsecond=700_000)
    drains = Draining(DriverVerdict("recovery-action-4", "drains"), since)
    (taint,) = taints(frozenset({drains}), DRIVER, ())
    assert taint.time_added == NOTICED.replace(microsecond=0)


def test_a_problem_of_an_instance_alone_is_a_taint_too() -> None:
    (taint,) = taints(frozenset({problem(Draining, "xid-94", SITE)}), DRIVER, DEFAULT_EVICT)
    assert taint.value == "xid-94"


def test_the_devices_of_a_released_node_have_a_taint_that_evicts_nobody() -> None:
    assert released_taint(DRIVER) == DeviceTaint(f"{DRIVER}/released", TaintEffect.NO_SCHEDULE)


def test_a_mode_that_cannot_be_switched_keeps_claims_from_the_devices_that_need_the_switch() -> (
    None
):
    held = HeldMode(Switch.ON, NvmlFailure("nvmlDeviceSetMigMode", "NVML_ERROR_IN_USE"), NOTICED)

    assert held_mode_taints(held, Switch.ON, DRIVER) == (
        DeviceTaint(f"{DRIVER}/mig-mode-held", TaintEffect.NO_SCHEDULE, "NVML_ERROR_IN_USE"),
    )
    assert held_mode_taints(held, Switch.OFF, DRIVER) == ()
    assert held_mode_taints(None, Switch.ON, DRIVER) == ()


def test_a_compute_mode_keeps_claims_from_the_devices_that_cannot_be_used_in_it() -> None:
    exclusive = ComputeMode.EXCLUSIVE_PROCESS

    assert compute_mode_taints(exclusive, PREVENTS_SHARES, DRIVER) == (
        DeviceTaint(f"{DRIVER}/compute-mode", TaintEffect.NO_SCHEDULE, "exclusive-process"),
    )
    assert compute_mode_taints(exclusive, PREVENTS_ALL, DRIVER) == ()


def test_a_failed_repair_keeps_new_claims_away_and_evicts_nobody() -> None:
    assert repair_taints(None, DRIVER) == ()
    (taint,) = repair_taints("DeviceNodeUnusable", DRIVER)
    assert taint == DeviceTaint(
        f"{DRIVER}/repair-failed", TaintEffect.NO_SCHEDULE, "DeviceNodeUnusable"
    )
