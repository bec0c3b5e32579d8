"""Prepares claims, and repairs what they need."""

import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Mapping

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.nvidia.nvml_library import NvmlLibrary
from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claim_status.writer import ClaimStatuses, ClaimStatusWriter
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.claim_reader import ClaimReader
from kubelet_plugin.claims.kubelet_record_file import KubeletRecordFile
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.claims.lock import FileLock, GpuLocks
from kubelet_plugin.claims.nvidia_claims import NvidiaClaims
from kubelet_plugin.claims.record import ClaimRecord
from kubelet_plugin.device_metadata.directory import MetadataDirectory
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.host import UNKNOWN_BOOT, HostPaths
from kubelet_plugin.inventory.inventory import (
    DriverReady,
    Inventory,
    known_gpus,
)
from kubelet_plugin.inventory.poller import InventoryPoller
from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.releasing import Releasing
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.compute_policy import ComputePolicy
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.held_modes import HeldModeRetry, HeldModes
from kubelet_plugin.prepare.limit_records import LimitRecords
from kubelet_plugin.prepare.memory_limits import MemoryLimits
from kubelet_plugin.prepare.metadata_files import MetadataFiles
from kubelet_plugin.prepare.mig_instances import MigInstances
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.mig_mode import MigModes
from kubelet_plugin.prepare.mps_daemons import MpsDaemons
from kubelet_plugin.prepare.ports import NodePorts
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.resource import Identity, Made
from kubelet_plugin.prepare.time_slices import TimeSlices
from kubelet_plugin.prepare.wanted import identities, refuse_unfit, wanted
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.settings import PluginSettings
from kubelet_plugin.sharing.claim_pods import ClaimPods

_log = logging.getLogger(__name__)


def claim_lifecycle(
    chosen: PluginSettings,
    client: Client,
    host: HostPaths,
    search: DriverSearch,
    nvml: NvmlLibrary,
    mig_intents: MigIntentFiles,
    held_modes: HeldModes,
    poller: InventoryPoller,
    *,
    mps_daemons: MpsDaemons,
    inventory_age: Callable[[], float],
    phase: PhaseFile,
    claims_changed: Callable[[Collection[NodeClaim]], None],
    pods: ClaimPods,
    live_claims: LiveClaims,
    report: ClaimReport,
) -> tuple[ClaimLifecycle, ClaimRecord, HeldModeRetry]:
    known: tuple[Inventory | None, dict[str, GpuDevice]] = None, {}

    def current_devices() -> dict[str, GpuDevice]:
        nonlocal known
        latest = poller.latest
        if latest is not known[0]:  # composing 200 devices takes longer than a prepare
            known = latest, {device.name: device for device in devices(latest)}
        return known[1]

    def read_claim(claim: ClaimReference, patience: float) -> Body:
        return client.get(RESOURCE_CLAIMS, claim.name, namespace=claim.namespace, timeout=patience)

    def set_up(claim: NodeClaim, made: Mapping[Identity, Made]) -> None:
        live_claims.set_up(claim, made)
        pods.prepared(claim)

    notes = DriftNotes()
    cdi_specs = CdiSpecs(
        driver=chosen.driver_name,
        driver_root=DriverRoot(search, chosen.cdi_hook),
        host=host,
        host_device_root=chosen.host_root,
        directory=CdiDirectory(chosen.cdi_directory, chosen.driver_name),
        notes=notes,
    )
    nvidia_claims = NvidiaClaims(
        plugin_directory=chosen.plugin_directory,
        cdi_directory=chosen.cdi_directory,
        driver=chosen.driver_name,
        boot_id=host.boot_id(),
    )
    mig_modes = MigModes(nvml, host, mig_intents, held_modes, notes=notes)
    preparer = Preparer(
        NodePorts(
            mig_modes=mig_modes,
            mig_instances=MigInstances(
                nvml, host, mig_intents, of_nvidia=nvidia_claims.devices, notes=notes
            ),
            time_slices=TimeSlices(nvml, ComputePolicy(search), mig_intents, clock=time.monotonic),
            memory_limits=MemoryLimits(
                nvml,
                LimitRecords(chosen.memory_limits, boot_id(host)),
                chosen.cgroup_root,
                seen_pods=pods.pods_of,
                notes=notes,
            ),
            mps_daemons=mps_daemons,
            metadata_files=MetadataFiles(
                chosen.publish_settings, MetadataDirectory(chosen.metadata_directory), notes=notes
            ),
            cdi_specs=cdi_specs,
        ),
        identities=lambda claim: identities(claim, chosen.share_time_slice),
        wanted=lambda claims, live: wanted(
            claims,
            live,
            current_devices(),
            device_metadata=chosen.device_metadata,
            share_interval=chosen.share_time_slice,
        ),
        refuse_unfit=lambda claim: refuse_unfit(claim, current_devices()),
        answer=lambda claim: prepared_devices(chosen.driver_name, claim),
        set_up=set_up,
        notes=notes,
    )
    reader = ClaimReader(
        read_claim,
        driver=chosen.driver_name,
        pool=chosen.node_name,
        share_interval_by_claim=chosen.share_time_slice_by_claim,
    )
    record = ClaimRecord(
        CheckpointFile(chosen.checkpoint),
        boot_id=boot_id(host),
        node_lock=FileLock(chosen.lock, clock=time.monotonic, pause=time.sleep),
        gpu_locks=GpuLocks(chosen.plugin_directory, clock=time.monotonic, pause=time.sleep),
        reader=reader,
        owners=preparer.owners,
        on_change=claims_changed,
        reporter=report,
        clock=time.monotonic,
    )
    lifecycle = ClaimLifecycle(
        reader=reader,
        record=record,
        nvidia_claims=nvidia_claims,
        read_kubelet_record=KubeletRecordFile(chosen.kubelet_root).read,
        preparer=preparer,
        reporter=report,
        inventory_age=inventory_age,
        oldest_inventory=chosen.oldest_inventory,
        released=phase.refuses_claims,
        clock=time.monotonic,
        random=random.random,
    )
    held_mode_retry = HeldModeRetry(
        held_modes,
        record=record,
        gpus=lambda: {known.gpu.uuid: known.gpu for known in known_gpus(poller.latest)},
        switch_on=mig_modes.switch_on,
        clock=time.monotonic,
    )
    return lifecycle, record, held_mode_retry


def write_claim_statuses(
    chosen: PluginSettings, client: Client, live_claims: LiveClaims, report: ClaimReport
) -> None:
    ClaimStatusWriter(
        live_claims,
        ClaimStatuses(client),
        driver=chosen.driver_name,
        reporter=report,
        clock=time.monotonic,
        now=time.time,
        pause=live_claims.pause,
    ).start()


def repair_periodically(
    claims: ClaimLifecycle,
    held_mode_retry: HeldModeRetry,
    gpus_changed: threading.Event,
    interval: float,
    poller: InventoryPoller,
    release: Releasing,
) -> None:
    """Repairs claims when the GPUs are first known or change, and every `interval` seconds.

    Before the GPUs are known, the GPU of a claim would appear to be missing.
    """
    gpus_changed.wait()
    while True:
        gpus_changed.clear()
        try:
            claims.repair()
            held_mode_retry.run()
        except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
            _log.exception("prepared claims could not be repaired; retrying")
        else:
            if isinstance(poller.latest, DriverReady):
                release.settle()
        gpus_changed.wait(interval)


def boot_id(host: HostPaths) -> str:
    return host.boot_id() or UNKNOWN_BOOT
