"""Whatever claims, the administrator and reboots do, the GPUs are as the live claims and he say."""

import ctypes
import tempfile
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pynvml
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.devices.counters import counter_set
from kubelet_plugin.devices.device import GpuDevice, of_kinds
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.name import WholeGpuName, parse_name
from kubelet_plugin.devices.publish_settings import PublishSettings
from simulation.nvml import uninstall
from simulation.nvml.state import GpuInstance
from tests.fakes.mig_node import DRIVER
from tests.integration.mig.agreement import Expected, TwoGpus, assert_agrees

SETTINGS = PublishSettings(DRIVER)
GPUS = (0, 1)
numbers = st.integers(0, 1000)
minors = st.sampled_from(GPUS)


class World(RuleBasedStateMachine):
    """Two GPUs, a scheduler that goes by what is published, a kubelet and an administrator."""

    def __init__(self) -> None:
        super().__init__()
        self.temporary = tempfile.TemporaryDirectory()
        self.node = TwoGpus.create(Path(self.temporary.name))
        self.live: dict[str, tuple[str, ...]] = {}
        self.admins: dict[int, tuple[GpuInstance, ...]] = dict.fromkeys(GPUS, ())
        self.admin_modes: set[int] = set()
        self.handed_over: set[int] = set()
        self.claims = 0
        self.drifted = False
        """Whether something of a live claim may be missing until the next repair."""

    # --- the scheduler and the kubelet ---

    @rule(number=numbers, several=st.booleans())
    def prepare_what_is_free(self, number: int, several: bool) -> None:
        free = self.free()
        if not free:
            return
        chosen = [free[number % len(free)]]
        if several:
            further = self.free(*chosen)
            chosen += [further[number % len(further)]] if further else []
        claim = self.new_claim()
        self.node.prepare(claim, *chosen)
        self.live[claim] = tuple(chosen)

    @rule(number=numbers)
    def prepare_what_is_taken(self, number: int) -> None:
        free = self.free()
        taken = sorted(self.exclusive().keys() - set(free))
        if not taken or self.drifted:
            return
        claim = self.new_claim()
        with pytest.raises(ClaimError):
            self.node.prepare(claim, taken[number % len(taken)])
        self.node.allocations.pop(claim)

    @rule(minor=minors)
    def prepare_a_monitor(self, minor: int) -> None:
        claim = self.new_claim()
        self.node.admins.add(claim)
        self.node.prepare(claim, f"gpu-{minor}-monitor")
        self.live[claim] = (f"gpu-{minor}-monitor",)

    @precondition(lambda self: self.live)
    @rule(number=numbers)
    def prepare_again(self, number: int) -> None:
        self.node.prepare(sorted(self.live)[number % len(self.live)])

    @precondition(lambda self: self.live)
    @rule(number=numbers)
    def unprepare(self, number: int) -> None:
        claim = sorted(self.live)[number % len(self.live)]
        self.node.unprepare(claim)
        del self.live[claim]

    @rule()
    def repair(self) -> None:
        self.node.repair()
        self.drifted = False

    @rule()
    def reboot(self) -> None:
        self.node.simulated.reboot()
        self.admins = dict.fromkeys(GPUS, ())
        self.admin_modes.clear()
        self.handed_over.clear()
        self.repair()

    # --- the administrator ---

    @rule(minor=minors, profile=numbers, place=numbers, whole=st.booleans())
    def admin_makes(self, minor: int, profile: int, place: int, whole: bool) -> None:
        if self.is_held_whole(minor) or self.drifted:
            return
        if not self.node.is_mig_on(minor):
            self.node.admin_switches(minor, on=True)
            recorded = self.node.is_mode_recorded(minor)
            (self.handed_over if recorded else self.admin_modes).add(minor)
        profiles = self.node.simulated.hardware.model(minor).mig_profiles
        chosen = profiles[profile % len(profiles)]
        start = chosen.starts[place % len(chosen.starts)]
        placement = pynvml.c_nvmlGpuInstancePlacement_t(start, chosen.size)
        with suppress(pynvml.NVMLError):  # no room
            handle = pynvml.nvmlDeviceCreateGpuInstanceWithPlacement(
                self.node.handle(minor), chosen.id, ctypes.byref(placement)
            )
            if whole:
                pynvml.nvmlGpuInstanceCreateComputeInstance(handle, _WHOLE[chosen.slices])
            known = {one.id for one in self.admins[minor]} | {
                one.id for one in self.node.instances(minor) if one.start != start
            }
            made = tuple(one for one in self.node.instances(minor) if one.id not in known)
            self.admins[minor] += made
            if minor not in self.admin_modes:
                self.handed_over.add(minor)

    @rule(minor=minors, number=numbers)
    def admin_destroys(self, minor: int, number: int) -> None:
        if not self.admins[minor]:
            return
        chosen = self.admins[minor][number % len(self.admins[minor])]
        handle = pynvml.nvmlDeviceGetGpuInstanceById(self.node.handle(minor), chosen.id)
        for compute in chosen.compute_instances:
            pynvml.nvmlComputeInstanceDestroy(
                pynvml.nvmlGpuInstanceGetComputeInstanceById(handle, compute.id)
            )
        pynvml.nvmlGpuInstanceDestroy(handle)
        self.admins[minor] = tuple(one for one in self.admins[minor] if one != chosen)
        self.drifted = True  # a claim may have had it

    @rule(minor=minors)
    def admin_switches_off(self, minor: int) -> None:
        with suppress(pynvml.NVMLError):  # with instances, the mode cannot be switched off
            self.node.admin_switches(minor, on=False)
            self.admin_modes.discard(minor)
            self.handed_over.discard(minor)

    # --- what must be true ---

    @invariant()
    def nothing_of_the_administrator_is_changed(self) -> None:
        for minor, instances in self.admins.items():
            assert set(instances) <= set(self.node.instances(minor))

    @invariant()
    def the_live_claims_are_recorded(self) -> None:
        assert self.node.claims_recorded() == self.live

    @rule()
    def after_repairs_the_node_is_as_they_say(self) -> None:
        self.repair()
        self.repair()
        expected = Expected(
            self.live, self.admins, frozenset(self.admin_modes), frozenset(self.handed_over)
        )
        assert_agrees(self.node, expected)
        assert self.node.reporter.unrepaired == []

    def teardown(self) -> None:
        try:
            self.after_repairs_the_node_is_as_they_say()
            for claim in list(self.live):
                self.node.unprepare(claim)
            self.live.clear()
            self.after_repairs_the_node_is_as_they_say()
        finally:
            uninstall()
            self.temporary.cleanup()

    # --- what is allocated ---

    def new_claim(self) -> str:
        self.claims += 1
        return f"claim-{self.claims}"

    def exclusive(self) -> Mapping[str, GpuDevice]:
        kinds = of_kinds(self.node.devices().values(), {DeviceKind.GPU, DeviceKind.MIG})
        return {device.name: device for device in kinds}

    def free(self, *further: str) -> list[str]:
        """The published devices that the scheduler may allocate, beside those of live claims."""
        devices = self.exclusive()
        held = [*(name for names in self.live.values() for name in names), *further]
        left: dict[str, Counter[str]] = {}
        for device in devices.values():
            counters = counter_set(device.gpu, device.state)
            amounts = {name: one.value.value() for name, one in counters.counters.items()}
            left[counters.name] = Counter(amounts)
        for name in held:
            if name in devices:
                for counter_name, consumed in self.consumed(devices[name]).items():
                    left[counter_name].subtract(consumed)
        return [
            name
            for name, device in devices.items()
            if name not in held
            and all(
                left[counter_name][each] >= amount
                for counter_name, consumed in self.consumed(device).items()
                for each, amount in consumed.items()
            )
        ]

    def consumed(self, device: GpuDevice) -> Mapping[str, Mapping[str, int]]:
        return {
            one.counter_set: {name: each.value.value() for name, each in one.counters.items()}
            for one in device.published(SETTINGS).consumes_counters
        }

    def is_held_whole(self, minor: int) -> bool:
        held = {parse_name(name) for names in self.live.values() for name in names}
        return WholeGpuName(minor) in held


_WHOLE = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4}
"""The compute instance profile that has all slices, by their number."""

TestAnyInterleaving = World.TestCase
TestAnyInterleaving.settings = settings(max_examples=20, stateful_step_count=25, deadline=None)
