"""`carina-kubelet-plugin`: connects the parts of the plugin, and stops them on SIGTERM."""

import contextlib
import logging
import threading
import time
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.event import ReportingController
from carina_dra.kube.event_recorder import EventRecorder
from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.process.cluster import connected
from carina_dra.process.execution import start_again
from carina_dra.process.program import run_to_the_end
from kubelet_plugin import waiting
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.repair_failure import FailedRepairs
from kubelet_plugin.devices.device import devices
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.inventory import (
    DriverReplaced,
    Inventory,
)
from kubelet_plugin.kubelet.dra_service import DraService
from kubelet_plugin.kubelet.presence import kubelet_socket
from kubelet_plugin.kubelet.registration import Registration
from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.held_modes import HeldModes
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.publish.offer import DeviceOffer
from kubelet_plugin.report.claim import ClaimReport
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.report.node import NodeReport
from kubelet_plugin.settings import PluginSettings
from kubelet_plugin.start.folder import check_checkpoint, held_devices, is_released, make_folders
from kubelet_plugin.start.preparing import (
    boot_id,
    claim_lifecycle,
    repair_periodically,
    write_claim_statuses,
)
from kubelet_plugin.start.publishing import started_publisher
from kubelet_plugin.start.reading import gpu_metrics, inventory_poller
from kubelet_plugin.start.releasing import node_release, own_node
from kubelet_plugin.start.serving import serve_kubelet, served_probes, wait_for_the_name
from kubelet_plugin.start.sharing import SharingTies, sharing_client

PROGRAM = "carina-kubelet-plugin"

_log = logging.getLogger(__name__)


def main(arguments: Sequence[str] | None = None) -> None:
    """Runs the plugin until SIGTERM or SIGINT. Exits with 2 if the settings are invalid."""
    run_to_the_end(PROGRAM, PluginSettings, connected(_connect_and_run), arguments)


def _connect_and_run(chosen: PluginSettings, connection: Connection, stop: threading.Event) -> None:
    host = HostPaths(chosen.host_root)
    if not waiting.has_work(host, chosen.plugin_directory):
        waiting.wait_instead(host, chosen.http_address, chosen.log_format, chosen.log_level)
    with Client(connection, user_agent=PROGRAM) as client:
        again = run(chosen, client, stop)
    if again:
        start_again()


def run(chosen: PluginSettings, client: Client, stop: threading.Event) -> bool:
    """Runs the plugin until `stop` is set, or until the loaded driver library was replaced.

    Returns whether to start it again in its place. If the node's GPUs are released, nothing of the
    driver is loaded or opened until then.

    Raises ProgramError: a folder, file, socket or address cannot be used.

    The order matters: publishing starts first. The kubelet's sockets are created last and removed
    first. They are not created while another product's plugin has the driver's name, because the
    kubelet would send that plugin's claims here.
    """
    make_folders(chosen)
    check_checkpoint(chosen)
    phase, ending = PhaseFile(chosen.release_phase), _Ending(stop)
    released = is_released(phase)
    with contextlib.ExitStack() as cleanup:
        metrics = PluginMetrics()
        host = HostPaths(chosen.host_root)
        events = _event_recorder(chosen, client, metrics, cleanup)
        node_report = NodeReport(events=events, node=chosen.node_name, metrics=metrics)
        publisher = started_publisher(chosen, client, node_report, cleanup)
        node_watch = own_node(chosen, client, node_report)
        offer = DeviceOffer(chosen.kind_choice, held_devices(chosen), publisher.publish)
        search = DriverSearch(chosen.driver_locations)
        nvml = NvmlLibrary(
            host.gpu_addresses, search.nvml_libraries, below=search.roots, released=released
        )
        mig_intents = MigIntentFiles(chosen.mig_intents, boot_id(host))

        def look_again() -> None:
            poller.read_now()

        held_modes, failed_repairs = (
            HeldModes(clock=time.monotonic, changed=look_again),
            FailedRepairs(changed=look_again),
        )
        gpus_changed, live_claims = threading.Event(), LiveClaims()
        ties = SharingTies.of(
            chosen,
            client,
            boot_id(host),
            offers_changed=look_again,
            pods_joined=gpus_changed.set,
        )

        def publish(inventory: Inventory) -> None:
            if _ends(inventory, stop):
                return
            offer.see(devices(inventory))
            live_claims.gpus_seen(inventory)
            gpus_changed.set()

        poller = inventory_poller(
            chosen,
            NvmlReader(
                host,
                nvml,
                intents=mig_intents.last_read,
                held_mode=held_modes.of,
                repair_failed=failed_repairs.of,
                guard=ties.guards.of,
                cgroup_root=chosen.cgroup_root,
            ),
            nvml,
            node_report,
            node_watch,
            cleanup,
            changed=publish,
            recall=ties.guards.recall,
            released=released,
        )
        metrics.add(gpu_metrics(nvml, live_claims))
        claim_report = ClaimReport(
            events=events,
            node=chosen.node_name,
            metrics=metrics,
            not_repaired=live_claims.repair_failed,
            repair_ended=failed_repairs.repaired,
        )

        def reorder(recorded: Collection[NodeClaim]) -> None:
            live_claims.recorded(recorded)
            uses = tuple(use for claim in recorded for use in claim.uses)
            offer.hold(use.device for use in uses)
            publisher.reorder(uses)
            release.look()
            sharing.look()

        claims, record, held_mode_retry = claim_lifecycle(
            chosen,
            client,
            host,
            search,
            nvml,
            mig_intents,
            held_modes,
            poller,
            phase=phase,
            mps_daemons=ties.mps_daemons,
            inventory_age=lambda: 0.0 if released else poller.age,
            claims_changed=reorder,
            pods=ties.pods,
            live_claims=live_claims,
            report=claim_report,
        )
        release = node_release(
            chosen,
            client,
            phase,
            claims,
            publisher,
            node_watch,
            ending.start_again,
            cleanup,
            daemons=ties.mps_daemons,
            closed=released,
        )
        sharing = sharing_client(
            chosen,
            record,
            live_claims,
            claim_report,
            metrics,
            cleanup,
            ties=ties,
            released=released,
        )
        release.start()
        registration = Registration(
            driver=chosen.driver_name,
            endpoint=chosen.dra_socket,
            info_requested=publisher.republish,
            reporter=node_report,
            kubelet=kubelet_socket(chosen.kubelet_root),
        )
        serving = threading.Event()
        cleanup.enter_context(
            served_probes(
                chosen, metrics, lambda: released or publisher.published, registration, serving
            )
        )
        if not wait_for_the_name(chosen, stop):
            return ending.again
        serve_kubelet(
            chosen,
            DraService(claims, reporter=claim_report, clock=time.monotonic, pause=stop.wait),
            live_claims,
            registration,
            cleanup,
        )
        serving.set()
        sharing.start()
        write_claim_statuses(chosen, client, live_claims, claim_report)
        threading.Thread(
            target=repair_periodically,
            args=(claims, held_mode_retry, gpus_changed, chosen.repair_seconds, poller, release),
            name="repair",
            daemon=True,  # a repair can be interrupted at any point, as by a kill
        ).start()
        ending.wait()
    return ending.again


def _ends(inventory: Inventory, stop: threading.Event) -> bool:
    """Stops the plugin, and returns whether it does, if it cannot go on with the driver."""
    if not isinstance(inventory, DriverReplaced):
        return False
    _log.warning(
        "another NVIDIA driver was installed; the plugin exits so that it restarts with that driver"
    )
    stop.set()
    return True


def _event_recorder(
    chosen: PluginSettings, client: Client, metrics: PluginMetrics, cleanup: contextlib.ExitStack
) -> EventRecorder:
    events = cleanup.enter_context(
        EventRecorder(client, ReportingController(chosen.driver_name, chosen.node_name))
    )
    metrics.events_dropped.set_function(lambda: events.dropped)
    return events


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


if __name__ == "__main__":
    main()
