"""Serves the kubelet and the probes."""

import contextlib
import logging
import threading
import time
from collections.abc import Callable, Iterable

import grpc

from carina_dra.process.program import ProgramError, served_http
from kubelet_plugin import memory
from kubelet_plugin.claim_status.live_claims import LiveClaims
from kubelet_plugin.kubelet.dra_service import DraService
from kubelet_plugin.kubelet.health_service import HealthService
from kubelet_plugin.kubelet.probe import socket_probe
from kubelet_plugin.kubelet.registration import Registration
from kubelet_plugin.kubelet.server import UnixServer, remove_abandoned_sockets
from kubelet_plugin.report.metrics import PluginMetrics
from kubelet_plugin.settings import PluginSettings
from kubelet_plugin.start.publishing import plugin_of_same_name

_NAME_INTERVAL = 2.0
"""Seconds between two looks for another plugin with the driver's name."""
_GRACE = 10.0
"""Seconds for which running calls may continue when the plugin stops."""
_log = logging.getLogger(__name__)


def wait_for_the_name(chosen: PluginSettings, stop: threading.Event) -> bool:
    """Waits until no other product's plugin has the driver's name; False if it is to stop.

    Raises ProgramError.
    """
    reported = False
    while chosen.beside_other_drivers == "withhold" and (other := plugin_of_same_name(chosen)):
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


def served_probes(
    chosen: PluginSettings,
    metrics: PluginMetrics,
    published: Callable[[], bool],
    registration: Registration,
    serving: threading.Event,
) -> contextlib.AbstractContextManager[None]:
    sockets = chosen.registration_socket, chosen.dra_socket
    probe = socket_probe(*sockets)

    def ready() -> str | None:
        if not serving.is_set() and (other := plugin_of_same_name(chosen)):
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


def serve_kubelet(
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
    _bind(chosen, handlers, live_claims, cleanup)
    _log.info("serving", extra={"driver": chosen.driver_name, "node": chosen.node_name})
    memory.trim_memory()


def _bind(
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
