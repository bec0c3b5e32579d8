"""`carina-kubelet-plugin`: creates the components, connects them, and stops them on SIGTERM."""

import contextlib
import logging
import random
import threading
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

import grpc

from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.event import ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.process.program import ProgramError, run_to_the_end, served_http
from kubelet_plugin import memory, waiting
from kubelet_plugin.cdi.claim_spec import prepared_devices
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_root import DriverRoot
from kubelet_plugin.cdi.driver_search import DriverSearch
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claim_status.writer import ClaimStatuses, ClaimStatusWriter
from kubelet_plugin.claims.checkpoint import CheckpointError, CheckpointFormError
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
from kubelet_plugin.inventory.damping import Damping
from kubelet_plugin.inventory.health_file import GpusFile, HealthFile
from kubelet_plugin.inventory.inventory import (
    DriverReady,
    DriverReplaced,
    Inventory,
    known_gpus,
)
from kubelet_plugin.inventory.node_health import NodeHealth
from kubelet_plugin.inventory.poller import InventoryPoller
from kubelet_plugin.kubelet.dra_service import DraService
from kubelet_plugin.kubelet.health_service import HealthService
from kubelet_plugin.kubelet.presence import kubelet_socket
from kubelet_plugin.kubelet.probe import socket_probe
from kubelet_plugin.kubelet.registration import Registration
from kubelet_plugin.kubelet.server import UnixServer, remove_abandoned_sockets
from kubelet_plugin.node.answering import NodeAnswer
from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.release import Phase
from kubelet_plugin.node.releasing import NodeRelease
from kubelet_plugin.node.watch import NodeWatch
from kubelet_plugin.nvml.event_watch import EventWatch
from kubelet_plugin.nvml.library import NvmlLibrary
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.compute_policy import ComputePolicy
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.held_modes import HeldModeRetry, HeldModes
from kubelet_plugin.prepare.metadata_files import MetadataFiles
from kubelet_plugin.prepare.mig_instances import MigInstances
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.mig_mode import MigModes
from kubelet_plugin.prepare.ports import NodePorts
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.time_slices import TimeSlices
from kubelet_plugin.prepare.wanted import identities, wanted
from kubelet_plugin.publish.offer import DeviceOffer
from kubelet_plugin.publish.ordering import Ordering
from kubelet_plugin.publish.other_driver_watch import (
    OtherDriverWatch,
    newer_plugin,
    same_name_plugin,
)
from kubelet_plugin.publish.other_drivers import SameNamePlugin
from kubelet_plugin.publish.publisher import Publisher
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.node import NodeReport
from kubelet_plugin.settings import PluginSettings

PROGRAM = "carina-kubelet-plugin"
_NAME_INTERVAL = 2.0
"""Seconds between two looks for another plugin with the driver's name."""
_GRACE = 10.0
"""Seconds for which running calls may continue when the plugin stops."""

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the plugin until SIGTERM or SIGINT. Exits with 2 if the settings are invalid."""
    run_to_the_end(PROGRAM, PluginSettings, _connect_and_run, arguments)


def _connect_and_run(chosen: PluginSettings, connection: Connection, stop: threading.Event) -> None:
    host = HostPaths(chosen.host_root)
    if not waiting.has_work(host, chosen.plugin_directory):
        waiting.wait_instead(host, chosen.http_address, chosen.log_format, chosen.log_level)
    with Client(connection, user_agent=PROGRAM) as client:
        again = run(chosen, client, stop)
    if again:
        waiting.start_again()


def run(chosen: PluginSettings, client: Client, stop: threading.Event) -> bool:
    """Runs the plugin until `stop` is set, or until the loaded driver library was replaced.

    Returns whether to start it again in its place. If the node's GPUs are released, nothing of the
    driver is loaded or opened until then.

    Raises ProgramError: a folder, file, socket or address cannot be used.

    The order matters: publishing starts first. The kubelet's sockets are created last and removed
    first. They are not created while another product's plugin has the driver's name, because the
    kubelet would send that plugin's claims here.
    """
    _make_folders(chosen)
    _check_checkpoint(chosen)
    phase, ending = PhaseFile(chosen.release_phase), _Ending(stop)
    released = _is_released(phase)
    with contextlib.ExitStack() as cleanup:
        metrics = PluginMetrics()
        host = HostPaths(chosen.host_root)
        events = _event_recorder(chosen, client, metrics, cleanup)
        node_report = NodeReport(events=events, node=chosen.node_name, metrics=metrics)
        publisher = _started_publisher(chosen, client, node_report, cleanup)
        own_node = NodeWatch(
            client,
            node=chosen.node_name,
            driver=chosen.driver_name,
            invalid=node_report.annotation_ignored,
        )
        offer = DeviceOffer(chosen.published_kinds, _held_devices(chosen), publisher.publish)
        search = DriverSearch(chosen.driver_locations)
        nvml = NvmlLibrary(host, search.nvml_libraries, below=search.roots, released=released)
        mig_intents = MigIntentFiles(chosen.mig_intents, _boot_id(host))

        def look_again() -> None:
            poller.read_now()

        held_modes = HeldModes(clock=time.monotonic, changed=look_again)
        gpus_changed = threading.Event()
        live_claims = LiveClaims()

        def publish(inventory: Inventory) -> None:
            if isinstance(inventory, DriverReplaced):
                _log.warning(
                    "another NVIDIA driver was installed; the plugin exits so that it restarts "
                    "with that driver"
                )
                stop.set()
                return
            offer.see(devices(inventory))
            live_claims.gpus_seen(inventory)
            gpus_changed.set()

        poller = _poller(
            chosen,
            NvmlReader(host, nvml, intents=mig_intents.last_read, held_mode=held_modes.of),
            nvml,
            node_report,
            own_node,
            changed=publish,
            released=released,
        )
        cleanup.callback(poller.stop)
        claim_report = ClaimReport(
            events=events,
            node=chosen.node_name,
            metrics=metrics,
            not_set_up=live_claims.not_set_up,
        )

        def reorder(recorded: Collection[NodeClaim]) -> None:
            live_claims.recorded(recorded)
            uses = tuple(use for claim in recorded for use in claim.uses)
            offer.hold(use.device for use in uses)
            publisher.reorder(uses)
            release.look()

        claims, held_mode_retry = _claims(
            chosen,
            client,
            host,
            search,
            nvml,
            mig_intents,
            held_modes,
            poller,
            phase=phase,
            inventory_age=lambda: 0.0 if released else poller.age,
            claims_changed=reorder,
            live_claims=live_claims,
            report=claim_report,
        )
        release = _follow_node(
            chosen, client, phase, claims, publisher, own_node, ending, cleanup, closed=released
        )
        service = DraService(claims, reporter=claim_report, clock=time.monotonic, pause=stop.wait)
        registration = Registration(
            driver=chosen.driver_name,
            endpoint=chosen.dra_socket,
            info_requested=publisher.republish,
            reporter=node_report,
            kubelet=kubelet_socket(chosen.kubelet_root),
        )
        serving = threading.Event()
        cleanup.enter_context(
            _served_http(
                chosen, metrics, lambda: released or publisher.published, registration, serving
            )
        )
        if not _wait_for_the_name(chosen, stop):
            return ending.again
        _serve(chosen, service, live_claims, registration, cleanup)
        _write_claim_statuses(chosen, client, live_claims, claim_report)
        serving.set()
        threading.Thread(
            target=_repair_periodically,
            args=(claims, held_mode_retry, gpus_changed, chosen.repair_seconds, poller, release),
            name="repair",
            daemon=True,  # a repair can be interrupted at any point, as by a kill
        ).start()
        ending.wait()
    return ending.again


@dataclass(slots=True)
class _Ending:
    """How the plugin ends."""

    stop: threading.Event
    again: bool = False

    def wait(self) -> None:
        """Waits until it is to end."""
        self.stop.wait()
        _log.info("stopping")

    def start_again(self) -> None:
        """Ends it so that it starts in its own place."""
        self.again = True
        self.stop.set()


def _follow_node(
    chosen: PluginSettings,
    client: Client,
    phase: PhaseFile,
    claims: ClaimLifecycle,
    publisher: Publisher,
    own_node: NodeWatch,
    ending: _Ending,
    cleanup: contextlib.ExitStack,
    *,
    closed: bool,
) -> NodeRelease:
    """Watches the own Node, and does what it asks for."""
    release = NodeRelease(
        phase,
        view=lambda: own_node.latest,
        holders=claims.holders,
        taint=publisher.release,
        is_published=lambda: publisher.published,
        answer=NodeAnswer(
            client, node=chosen.node_name, driver=chosen.driver_name, now=time.time
        ).write,
        restart=ending.start_again,
        nvml_is_closed=closed,
    )
    own_node.listen(lambda _: release.look())
    own_node.start()
    cleanup.callback(own_node.stop)
    release.start()
    return release


def _serve(
    chosen: PluginSettings,
    service: DraService,
    live_claims: LiveClaims,
    registration: Registration,
    cleanup: contextlib.ExitStack,
) -> None:
    handlers = (
        *service.handlers(),
        *HealthService(live_claims, clock=time.monotonic, now=time.time).handlers(),
        *registration.handlers(),
    )
    _serve_kubelet(chosen, handlers, live_claims, cleanup)
    _log.info("serving", extra={"driver": chosen.driver_name, "node": chosen.node_name})
    memory.trim_memory()


def _started_publisher(
    chosen: PluginSettings, client: Client, node_report: NodeReport, cleanup: contextlib.ExitStack
) -> Publisher:
    publisher = Publisher(
        client,
        settings=chosen.publish_settings,
        node=chosen.node_name,
        reporter=node_report,
        clock=time.monotonic,
        other_drivers=OtherDriverWatch(
            read_node=lambda: client.get(NODES, chosen.node_name),
            same_name_plugin=lambda: _same_name_plugin(chosen),
            clock=time.monotonic,
        ),
        beside_other_drivers=chosen.beside_other_drivers,
        ordering=Ordering(chosen.device_order, seconds=chosen.reorder_seconds),
        is_replaced=lambda: newer_plugin(chosen.plugin_directory, chosen.dra_socket),
    )
    publisher.start()
    cleanup.callback(publisher.stop)
    return publisher


def _is_released(phase: PhaseFile) -> bool:
    try:
        return phase.read() is Phase.RELEASED
    except OSError as error:
        raise ProgramError(f"the phase of a release cannot be read: {error}") from error


def _event_recorder(
    chosen: PluginSettings, client: Client, metrics: PluginMetrics, cleanup: contextlib.ExitStack
) -> EventRecorder:
    events = cleanup.enter_context(
        EventRecorder(client, ReportingController(chosen.driver_name, chosen.node_name))
    )
    metrics.events_dropped.set_function(lambda: events.dropped)
    return events


def _make_folders(chosen: PluginSettings) -> None:
    for folder in (chosen.plugin_directory, chosen.registration_socket.parent):
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ProgramError(
                f"kubelet_root {chosen.kubelet_root}: {folder} cannot be created: {error}; set "
                "kubelet_root to the kubelet's --root-dir, mounted at the same path and writable"
            ) from error


def _check_checkpoint(chosen: PluginSettings) -> None:
    """Refuses the record of another version before anything is published. Raises ProgramError."""
    try:
        CheckpointFile(chosen.checkpoint).check_form()
    except CheckpointFormError as error:
        raise ProgramError(str(error)) from error


def _poller(
    chosen: PluginSettings,
    reader: NvmlReader,
    nvml: NvmlLibrary,
    report: NodeReport,
    own_node: NodeWatch,
    *,
    changed: Callable[[Inventory], None],
    released: bool,
) -> InventoryPoller:
    """Starts to read the GPUs, and to wait for events of the driver, unless they are released.

    Raises ProgramError.
    """
    file, health = GpusFile(chosen.plugin_directory), _health(chosen, report)
    known = file.load()

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


def _held_devices(chosen: PluginSettings) -> frozenset[str]:
    """The devices of recorded claims; none if the record cannot be read."""
    try:
        checkpoint = CheckpointFile(chosen.checkpoint).load()
    except (CheckpointError, CheckpointFormError, OSError) as error:
        _log.warning("the record of claims cannot be read yet", extra={"error": str(error)})
        return frozenset()
    claims = () if checkpoint is None else checkpoint.claims.values()
    return frozenset(use.device for claim in claims for use in claim.uses)


def _same_name_plugin(chosen: PluginSettings) -> SameNamePlugin | None:
    return same_name_plugin(chosen.plugin_directory, chosen.dra_socket)


def _wait_for_the_name(chosen: PluginSettings, stop: threading.Event) -> bool:
    """Waits until no other product's plugin has the driver's name; False if it is to stop.

    Raises ProgramError.
    """
    reported = False
    while chosen.beside_other_drivers == "withhold" and (other := _same_name_plugin(chosen)):
        if not reported:
            _log.warning(
                "the plugin does not register, because another one has the driver's name",
                extra={"socket": other.socket, "checkpoint": other.checkpoint},
            )
            reported = True
        if stop.wait(_NAME_INTERVAL):
            return False
    # With its own files beside the other's checkpoint, Carina recognizes its sockets in an update.
    try:
        chosen.lock.touch(mode=0o600)
    except OSError as error:
        raise ProgramError(
            f"kubelet_root {chosen.kubelet_root}: {chosen.lock} cannot be created: {error}; check "
            "that its folder is writable"
        ) from error
    return not stop.is_set()


def _repair_periodically(
    claims: ClaimLifecycle,
    held_mode_retry: HeldModeRetry,
    gpus_changed: threading.Event,
    interval: float,
    poller: InventoryPoller,
    release: NodeRelease,
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


def _claims(
    chosen: PluginSettings,
    client: Client,
    host: HostPaths,
    search: DriverSearch,
    nvml: NvmlLibrary,
    mig_intents: MigIntentFiles,
    held_modes: HeldModes,
    poller: InventoryPoller,
    *,
    inventory_age: Callable[[], float],
    phase: PhaseFile,
    claims_changed: Callable[[Collection[NodeClaim]], None],
    live_claims: LiveClaims,
    report: ClaimReport,
) -> tuple[ClaimLifecycle, HeldModeRetry]:
    known: tuple[Inventory | None, dict[str, GpuDevice]] = None, {}

    def current_devices() -> dict[str, GpuDevice]:
        nonlocal known
        latest = poller.latest
        if latest is not known[0]:  # composing 200 devices takes longer than a prepare
            known = latest, {device.name: device for device in devices(latest)}
        return known[1]

    def read_claim(claim: ClaimReference, patience: float) -> Body:
        return client.get(RESOURCE_CLAIMS, claim.name, namespace=claim.namespace, timeout=patience)

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
    mig_modes = MigModes(nvml, mig_intents, held_modes, notes=notes)
    preparer = Preparer(
        NodePorts(
            mig_modes=mig_modes,
            mig_instances=MigInstances(
                nvml, mig_intents, of_nvidia=nvidia_claims.devices, notes=notes
            ),
            time_slices=TimeSlices(nvml, ComputePolicy(search), mig_intents, clock=time.monotonic),
            metadata_files=MetadataFiles(
                chosen.publish_settings, MetadataDirectory(chosen.metadata_directory), notes=notes
            ),
            cdi_specs=cdi_specs,
        ),
        identities=identities,
        wanted=lambda claims, live: wanted(
            claims, live, current_devices(), device_metadata=chosen.device_metadata
        ),
        answer=lambda claim: prepared_devices(chosen.driver_name, claim),
        set_up=live_claims.set_up,
        notes=notes,
    )
    reader = ClaimReader(read_claim, driver=chosen.driver_name, pool=chosen.node_name)
    record = ClaimRecord(
        CheckpointFile(chosen.checkpoint),
        boot_id=_boot_id(host),
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
    return lifecycle, held_mode_retry


def _write_claim_statuses(
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


def _boot_id(host: HostPaths) -> str:
    return host.boot_id() or UNKNOWN_BOOT


def _served_http(
    chosen: PluginSettings,
    metrics: PluginMetrics,
    published: Callable[[], bool],
    registration: Registration,
    serving: threading.Event,
) -> contextlib.AbstractContextManager[None]:
    sockets = chosen.registration_socket, chosen.dra_socket
    probe = socket_probe(*sockets)

    def ready() -> str | None:
        if not serving.is_set() and (other := _same_name_plugin(chosen)):
            return f"another plugin has the name {chosen.driver_name}; it listens on {other.socket}"
        if not published():
            return "the node's ResourceSlices are not published yet"
        gone = next((path for path in sockets if not path.is_socket()), None)
        return registration.absence if gone is None else f"the plugin's socket {gone} is gone"

    return served_http(
        chosen.http_address,
        metrics=metrics.exposition,
        content_type=PluginMetrics.CONTENT_TYPE,
        healthy=lambda: probe() if serving.is_set() else None,
        ready=ready,
    )


def _serve_kubelet(
    chosen: PluginSettings,
    handlers: Iterable[grpc.GenericRpcHandler],
    live_claims: LiveClaims,
    cleanup: contextlib.ExitStack,
) -> None:
    for folder, pattern in chosen.socket_patterns:
        for path in remove_abandoned_sockets(folder, pattern):
            _log.info(
                "removed the socket of a plugin process that no longer exists",
                extra={"path": str(path)},
            )
    server = UnixServer((chosen.dra_socket, chosen.registration_socket), handlers)
    try:
        server.start()
    except (OSError, RuntimeError) as error:
        raise ProgramError(
            f"kubelet_root {chosen.kubelet_root}: socket {chosen.dra_socket} or "
            f"{chosen.registration_socket} cannot be bound: {error}; check that both folders are "
            "writable"
        ) from error
    cleanup.callback(server.stop, _GRACE)
    cleanup.callback(live_claims.stop)  # the kubelet is told before the sockets are removed


if __name__ == "__main__":
    main()
