"""Reads the GPUs, judges their health, and waits for events of the driver."""

import contextlib
import logging
import time
from collections.abc import Callable, Mapping
from datetime import UTC, datetime

from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.process.program import ProgramError
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.inventory.damping import Damping
from kubelet_plugin.inventory.health_file import GpusFile, HealthFile
from kubelet_plugin.inventory.inventory import (
    DriverReady,
    Inventory,
    known_gpus,
)
from kubelet_plugin.inventory.node_health import NodeHealth
from kubelet_plugin.inventory.poller import InventoryPoller
from kubelet_plugin.inventory.share_guard import ShareGuard
from kubelet_plugin.node.watch import NodeWatch
from kubelet_plugin.nvml.event_watch import EventWatch
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.nvml.usage import GpuUsage, UsageReader
from kubelet_plugin.report.gpu_metrics import GpuMetrics, partitions
from kubelet_plugin.report.node import NodeReport
from kubelet_plugin.report.usage_cache import UsageCache
from kubelet_plugin.settings import PluginSettings

_log = logging.getLogger(__name__)


def inventory_poller(
    chosen: PluginSettings,
    reader: NvmlReader,
    nvml: NvmlLibrary,
    report: NodeReport,
    own_node: NodeWatch,
    cleanup: contextlib.ExitStack,
    *,
    changed: Callable[[Inventory], None],
    recall: Callable[[Mapping[str, ShareGuard]], None],
    released: bool,
) -> InventoryPoller:
    """Starts to read the GPUs, and to wait for events of the driver, unless they are released.

    `recall` receives what carina-sharing offered to an earlier process, by the UUIDs of GPUs.

    Raises ProgramError.
    """
    file, health = GpusFile(chosen.plugin_directory), _health(chosen, report)
    known = file.load()
    recall({seen.gpu.uuid: seen.state.guard for seen in known_gpus(known)})

    def judged(inventory: Inventory) -> Inventory:
        if (asked := own_node.latest) is not None:
            health.clear(asked.faults_cleared)
        return health.judged(inventory)

    def recorded(inventory: Inventory) -> None:
        changed(inventory)
        if isinstance(inventory, DriverReady):
            _record(file, inventory)

    poller = InventoryPoller(
        reader.read,
        changed=recorded,
        reporter=report,
        clock=time.monotonic,
        interval=chosen.poll_seconds,
        patience=chosen.hang_seconds,
        judged=judged,
        known=None if known is None else health.last(known),
    )
    cleanup.callback(poller.stop)
    if not released:
        poller.start()
        EventWatch(nvml, health, wake=poller.read_now, clock=time.monotonic).start()
    return poller


def _health(chosen: PluginSettings, report: NodeReport) -> NodeHealth:
    """The health of the GPUs, with what is remembered of it. Raises ProgramError."""
    file = HealthFile(chosen.plugin_directory)
    try:
        known = file.load()
    except OSError as error:
        raise ProgramError(
            f"kubelet_root {chosen.kubelet_root}: the record of GPU faults cannot be read: "
            f"{error}; check that the folder of the plugin can be read and written"
        ) from error
    return NodeHealth(
        now=lambda: datetime.now(UTC),
        rules=chosen.xid_rules,
        damping=Damping(chosen.recovery_seconds),
        known=known,
        store=file,
        reported=report.inventory_changed,
        xid_seen=report.xid_reported,
    )


def _record(file: GpusFile, inventory: DriverReady) -> None:
    try:
        file.save(inventory)
    except OSError as error:
        _log.warning("the node's GPUs cannot be recorded", extra={"error": str(error)})


def gpu_metrics(nvml: NvmlLibrary, live_claims: LiveClaims) -> GpuMetrics:
    reader = UsageReader(nvml)

    def read() -> Mapping[str, GpuUsage]:
        now = live_claims.now
        gpus = [known.gpu for known in known_gpus(now.gpus.inventory)]
        uuids = [partition.uuid for partition in partitions(now)]
        return reader.read(gpus, uuids)

    return GpuMetrics(lambda: live_claims.now, UsageCache(read, clock=time.monotonic).latest)
