"""Health over restarts, reboots and reads that fail, and what its taints cost and keep."""

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pynvml
import pytest

from carina_dra.nvidia.nvml_library import NvmlLibrary, call
from carina_dra.resource import DeviceTaint, TaintEffect
from kubelet_plugin.devices.taint import taints
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health import (
    DriverVerdict,
    NeedsReset,
)
from kubelet_plugin.inventory.health_file import GpusFile, HealthFile
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.node_health import NodeHealth
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.publish.pool import DeviceSlice, PublishedPool
from kubelet_plugin.publish.sync import sync
from simulation.nvml import SimulatedNode, installed
from tests.samples.gpus import NOTICED
from tests.unit.kubelet_plugin.publish.test_sync import NODE, applied, pool, stored

NEWEST = "590.48.01"


# --- faults that get lost: old drivers, where XIDs decide ---


def test_a_verdict_that_cannot_be_read_does_not_outrank_an_xid(tmp_path: Path) -> None:
    """§6.3: the XID counts where the field is unsupported; a stale 0 is no verdict either."""
    node = SimulatedNode.create(tmp_path / "n", "dgx-h100", driver_version=NEWEST)
    original = call

    def failing(function: Callable[..., object], *arguments: object) -> object:
        answers = original(function, *arguments)
        if function is pynvml.nvmlDeviceGetFieldValues:
            for answer in answers:
                answer.nvmlReturn = pynvml.NVML_ERROR_UNKNOWN
        return answers

    with installed(node.directory), pytest.MonkeyPatch.context() as patch:
        host = HostPaths(node.root)
        reader = NvmlReader(host, NvmlLibrary(host.gpu_addresses))
        health = NodeHealth(now=lambda: NOTICED)
        inventory = health.judged(reader.read())
        patch.setattr("kubelet_plugin.nvml.signals.call", failing)
        inventory = health.judged(reader.read(inventory))
        health.xid(node.state.gpus[2].uuid, 95, None)
        inventory = health.judged(reader.read(inventory))
        assert isinstance(inventory, DriverReady)
        assert inventory.gpus[2].state.problems


# --- recovery ---


def test_after_a_reboot_a_gpu_that_stays_lost_asks_nobody_else_to_reboot(tmp_path: Path) -> None:
    """The action of a GPU that does not answer is that of the boot before."""
    node = SimulatedNode.create(tmp_path / "n", "dgx-h100", driver_version=NEWEST)
    now = NOTICED

    with installed(node.directory):

        def plugin() -> tuple[NvmlReader, NodeHealth, DriverReady | None]:
            host, file = HostPaths(node.root), HealthFile(tmp_path)
            health = NodeHealth(now=lambda: now, known=file.load(), store=file)
            known = GpusFile(tmp_path).load()
            known = None if known is None else health.last(known)
            return NvmlReader(host, NvmlLibrary(host.gpu_addresses)), health, known

        reader, health, _ = plugin()
        node.set_health(3, recovery_action=2)
        inventory = health.judged(reader.read())
        assert isinstance(inventory, DriverReady)
        GpusFile(tmp_path).save(inventory)

        node.reboot()
        node.lose_gpu(3)
        reader, health, known = plugin()
        latest = known
        for _ in range(1000):
            now += timedelta(seconds=5)
            read = health.judged(reader.read(latest))
            assert isinstance(read, DriverReady)
            latest = read
    assert latest is not None
    states = {known.gpu.minor: {p.state for p in known.state.problems} for known in latest.gpus}
    assert "lost" in states[3]
    assert all(not states[minor] for minor in states if minor != 3), states


# --- timeAdded ---

AT = datetime(2026, 1, 31, 12, tzinfo=UTC)
TAINTED = DeviceTaint("gpu.carina.dev/lost", TaintEffect.NO_EXECUTE, "X")


def _with_taint(of: PublishedPool, name: str) -> PublishedPool:
    slices = tuple(
        replace(
            content,
            devices=tuple(
                replace(device, taints=(TAINTED,)) if device.name == name else device
                for device in content.devices
            ),
        )
        for content in of.slices
        if isinstance(content, DeviceSlice)
    )
    return replace(of, slices=slices)


def test_a_taint_keeps_its_time_when_its_device_moves_to_another_slice() -> None:
    before = stored(_with_taint(pool("ab", "c"), "b"))
    timed = [
        replace(
            known,
            spec=replace(
                known.spec,
                devices=tuple(
                    replace(device, taints=tuple(replace(t, time_added=AT) for t in device.taints))
                    for device in known.spec.devices
                ),
            ),
        )
        for known in before
    ]
    after = applied(timed, sync(_with_taint(pool("a", "bc"), "b"), timed))
    times = [t.time_added for s in after for device in s.spec.devices for t in device.taints]
    assert times == [AT]


def test_the_taint_of_a_known_problem_says_since_when() -> None:
    """The kubelet deletes the slices when it starts: the API server then dates the taint anew,
    so tolerationSeconds begin again at each restart of the kubelet and each reboot."""
    problem = NeedsReset(DriverVerdict("xid-95", ""), NOTICED)
    [taint] = taints(frozenset({problem}), "gpu.carina.dev", frozenset())
    assert sync(_named(taint), []).create[0].spec.devices[0].taints[0].time_added == NOTICED


def _named(taint: DeviceTaint) -> PublishedPool:
    [content] = pool("a").slices
    assert isinstance(content, DeviceSlice)
    device = replace(content.devices[0], taints=(taint,))
    return PublishedPool("gpu.carina.dev", NODE, (DeviceSlice((device,)),))
