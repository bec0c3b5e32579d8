"""The health of the node's GPUs over time: what is reported, remembered and damped."""

from dataclasses import replace
from datetime import timedelta

import pytest

from kubelet_plugin.devices.taint import taints
from kubelet_plugin.inventory.change import ApplicationFailed, InventoryChange
from kubelet_plugin.inventory.damping import Damping
from kubelet_plugin.inventory.faults import MOST
from kubelet_plugin.inventory.health import state
from kubelet_plugin.inventory.inventory import DriverMissing, DriverReady
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.node_health import NodeHealth, RememberedHealth
from kubelet_plugin.inventory.signals import Fabric, Signals, Slowdown
from kubelet_plugin.inventory.xid import XidRules
from kubelet_plugin.inventory.xid_catalogue import XidSeverity
from tests.samples.gpus import NOTICED, UNREADABLE, gpu, observed

UUID = gpu(0).uuid
SITE = MigSite(9, MigPlacement(0, 4))
DAMPING = Damping(first=60.0)


class Disk:
    """Keeps what is saved; it may be full."""

    def __init__(self) -> None:
        self.kept = RememberedHealth()
        self.writes = 0
        self.full = False

    def save(self, remembered: RememberedHealth) -> None:
        if self.full:
            raise OSError(28, "No space left on device")
        self.kept = remembered
        self.writes += 1


class Plugin:
    """A plugin on a node with one GPU, which may be restarted, with a clock of its own."""

    def __init__(self) -> None:
        self.disk = Disk()
        self.now = NOTICED
        self.said: list[InventoryChange] = []
        self.counted: list[int] = []
        self.signals = Signals()
        self.binding = "boot-1/7"
        self.start()

    def start(self) -> None:
        """Starts the plugin, after it was killed."""
        self.health = NodeHealth(
            now=lambda: self.now,
            damping=DAMPING,
            known=self.disk.kept,
            store=self.disk,
            reported=self.said.append,
            xid_seen=lambda _, xid: self.counted.append(xid),
        )

    def look(self, seconds: float = 5, *, answers: bool = True) -> str:
        """Lets time pass, and reads the GPU; returns its state."""
        self.now += timedelta(seconds=seconds)
        seen = observed(0, *(() if answers else (UNREADABLE,)), architecture="Hopper")
        seen = replace(seen, state=replace(seen.state, signals=self.signals, binding=self.binding))
        inventory = self.health.judged(DriverReady((seen,)))
        assert isinstance(inventory, DriverReady)
        return state(inventory.gpus[0].state.problems)

    def xid(self, number: int, site: MigSite | None = None) -> bool:
        return self.health.xid(UUID, number, site)


def test_an_xid_counts_at_the_next_read_and_has_the_gpu_read() -> None:
    plugin = Plugin()
    assert plugin.look() == "ready"
    assert plugin.xid(95)
    assert plugin.look() == "needs-reset"


def test_a_plugin_that_is_killed_right_after_an_xid_knows_it() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.xid(95)
    plugin.start()
    assert plugin.look() == "needs-reset"


def test_a_fault_outlasts_restarts_and_a_reboot_resolves_it_after_a_while() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.xid(95)
    for _ in range(3):
        assert plugin.look() == "needs-reset"
        plugin.start()
    plugin.binding = "boot-2/7"
    plugin.start()
    assert [plugin.look(30) for _ in range(3)] == ["needs-reset", "needs-reset", "ready"]


def test_a_replacement_outlasts_a_reboot_until_it_is_cleared() -> None:
    plugin = Plugin()
    plugin.signals = Signals(rows_failed=True)
    assert plugin.look() == "memory-failed"
    plugin.binding = "boot-2/7"
    plugin.start()
    assert plugin.look(1000) == "memory-failed"


def test_an_administrator_clears_the_faults_of_a_gpu() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.xid(95)
    plugin.look()
    plugin.health.clear({UUID: plugin.now + timedelta(seconds=5)})
    assert [plugin.look(), plugin.look(60)] == ["needs-reset", "ready"]

    plugin.xid(95)
    assert plugin.look() == "needs-reset"
    assert plugin.look(1) == "needs-reset"


def test_a_time_clears_nothing_before_it_has_come() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.health.clear({UUID: plugin.now + timedelta(days=1)})
    plugin.xid(95)
    assert plugin.look(60) == "needs-reset"


def test_a_row_that_was_remapped_is_remembered_beside_the_error() -> None:
    plugin = Plugin()
    plugin.look()
    assert plugin.xid(63)
    plugin.start()
    plugin.look()
    plugin.xid(48)
    assert plugin.look() == "drain"


def test_an_error_of_an_application_is_said_and_is_no_taint() -> None:
    plugin = Plugin()
    plugin.look()
    assert not plugin.xid(31)
    assert plugin.look() == "ready"
    (said,) = plugin.said
    assert isinstance(said, ApplicationFailed)
    assert said.xid == 31


def test_a_thousand_xids_a_second_cost_one_event_and_grow_nothing() -> None:
    plugin = Plugin()
    plugin.look()
    for _ in range(60):
        for number in (13, 31, 95, 43, *range(200, 400)):
            plugin.xid(number)
        plugin.look(1)

    assert len(plugin.said) == 2  # one for each XID of an application
    assert len(plugin.disk.kept.memory.faults[UUID]) <= 64
    assert len(plugin.counted) == 60 * 204


def test_an_application_that_goes_on_failing_is_said_every_ten_minutes() -> None:
    plugin = Plugin()
    for _ in range(61):
        plugin.look(10)
        plugin.xid(31)
    assert len(plugin.said) == 2


def test_after_a_restart_the_problems_that_counted_are_known() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.xid(95)
    plugin.look()
    plugin.start()
    (known,) = plugin.health.last(DriverReady((observed(0),))).gpus
    assert state(known.state.problems) == "needs-reset"


def test_at_rest_nothing_is_written() -> None:
    plugin = Plugin()
    plugin.signals = Signals(recovery_action=4)
    plugin.look()
    writes = plugin.disk.writes
    for _ in range(100):
        plugin.look()
    assert plugin.disk.writes == writes


def test_a_fault_that_is_reported_again_and_again_is_written_at_once_only_first() -> None:
    plugin = Plugin()
    plugin.look()
    before = plugin.disk.writes
    for _ in range(100):
        plugin.xid(95)
    assert plugin.disk.writes == before + 1
    plugin.look()
    assert plugin.disk.kept.memory.faults[UUID][95, None].count == 100


def test_a_storm_of_different_xids_is_written_at_once_only_while_there_is_room() -> None:
    plugin = Plugin()
    plugin.look()
    before = plugin.disk.writes
    for xid in range(1000, 1300):
        plugin.xid(xid)
    assert plugin.disk.writes - before == MOST
    plugin.look()
    assert plugin.disk.writes - before == MOST + 1


def test_a_full_disk_loses_nothing_that_is_kept_and_is_tried_again() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.disk.full = True
    plugin.xid(95)
    assert plugin.look() == "needs-reset"
    plugin.disk.full = False
    plugin.look()
    plugin.start()
    assert plugin.look() == "needs-reset"


def test_a_gpu_that_is_slowed_down_now_and_then_stays_degraded() -> None:
    plugin, states = Plugin(), []
    for look in range(24):
        hot = frozenset({Slowdown.HARDWARE_THERMAL}) if look % 2 else frozenset[Slowdown]()
        plugin.signals = Signals(recovery_action=0, slowdowns=hot)
        states.append(plugin.look())
    assert states == ["ready"] + ["degraded"] * 23


def test_a_benign_problem_does_not_keep_a_worse_one() -> None:
    plugin = Plugin()
    plugin.signals = Signals(recovery_action=1, rows_pending=True)
    assert plugin.look() == "needs-reset"
    plugin.signals = Signals(recovery_action=0, rows_pending=True)
    assert [plugin.look(30) for _ in range(3)] == ["needs-reset", "needs-reset", "degraded"]


def test_a_gpu_off_the_bus_is_out_until_it_was_bound_again() -> None:
    plugin = Plugin()
    plugin.signals = Signals(recovery_action=0)
    plugin.look()
    plugin.xid(79)
    assert plugin.look(answers=False) == "needs-reboot"
    plugin.binding = "boot-1/8"
    assert [plugin.look(), plugin.look(60)] == ["needs-reboot", "ready"]


def test_an_xid_before_the_first_read_counts() -> None:
    """Events are waited for while the first read is still going on, or hangs."""
    plugin = Plugin()
    plugin.look()
    plugin.start()
    plugin.xid(95)
    assert plugin.look() == "needs-reset"


def test_an_event_before_the_first_read_has_the_gpu_read() -> None:
    assert Plugin().xid(95)


def test_a_missing_driver_changes_nothing_that_is_remembered() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.xid(95)
    missing = DriverMissing("not loaded")
    assert plugin.health.judged(missing) == missing
    assert plugin.look() == "needs-reset"


@pytest.mark.parametrize(("xid", "site"), [(31, None), (31, SITE), (94, None)])
def test_an_error_of_an_application_is_not_remembered(xid: int, site: MigSite | None) -> None:
    plugin = Plugin()
    plugin.look()
    assert not plugin.xid(xid, site)
    assert plugin.look() == "ready"
    assert plugin.disk.kept.memory.faults == {}


def test_an_xid_while_the_driver_is_missing_is_remembered() -> None:
    plugin = Plugin()
    plugin.look()
    plugin.health.judged(DriverMissing("not loaded"))
    plugin.xid(95)
    assert plugin.look() == "needs-reset"


def test_what_was_said_of_applications_is_remembered_of_the_latest_256() -> None:
    said: list[InventoryChange] = []
    numbers = range(1000, 1257)
    rules = XidRules(dict.fromkeys(numbers, XidSeverity.APPLICATION))
    health = NodeHealth(now=lambda: NOTICED, rules=rules, reported=said.append)
    health.judged(DriverReady((observed(0),)))
    for number in (*numbers, 1000, 1256):
        health.xid(UUID, number, None)

    assert len(said) == 258


def test_a_contained_error_of_an_instance_is_remembered() -> None:
    plugin = Plugin()
    plugin.look()
    assert plugin.xid(94, SITE)
    plugin.start()
    assert plugin.look() == "drain"


def test_a_fault_that_was_seen_while_the_clock_was_years_ahead_can_be_cleared() -> None:
    plugin = Plugin()
    plugin.look()
    right = plugin.now
    plugin.now += timedelta(days=3650)
    plugin.xid(95)
    plugin.now = right
    assert plugin.look() == "needs-reset"

    plugin.health.clear({UUID: plugin.now + timedelta(seconds=1)})

    assert plugin.look(5) == "needs-reset"
    assert plugin.look(60) == "ready"


@pytest.mark.parametrize(
    "turns",
    [
        (Signals(recovery_action=1), Signals(recovery_action=6)),
        (Signals(fabric=Fabric.UNHEALTHY), Signals(fabric=Fabric.JOINING)),
        (
            Signals(slowdowns=frozenset({Slowdown.HARDWARE_THERMAL})),
            Signals(slowdowns=frozenset({Slowdown.POWER_BRAKE})),
        ),
    ],
    ids=["recovery action", "fabric", "slowdown"],
)
def test_a_reason_that_changes_all_the_time_changes_taints_four_times_a_minute_at_most(
    turns: tuple[Signals, Signals],
) -> None:
    plugin, changes, known = Plugin(), 0, None
    for turn in range(12):  # a minute
        plugin.now += timedelta(seconds=5)
        seen = observed(0, architecture="Hopper")
        seen = replace(seen, state=replace(seen.state, signals=turns[turn % 2]))
        inventory = plugin.health.judged(DriverReady((seen,)))
        assert isinstance(inventory, DriverReady)
        found = taints(inventory.gpus[0].state.problems, "gpu.carina.dev", ())
        changes, known = changes + (found != known), found
    assert changes <= 4
