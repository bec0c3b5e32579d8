"""Registration of the plugin with the kubelet (pluginregistration/v1).

The kubelet finds the registration socket, calls GetInfo, and reports the result with
NotifyRegistrationStatus. GetInfo is also the sign of a kubelet that has just started, and that has
deleted every ResourceSlice of the node.
"""

import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from kubelet_plugin.kubelet.dra_service import SUPPORTED_VERSIONS
from kubelet_plugin.kubelet.health_service import HEALTH_VERSIONS
from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as pb
from kubelet_plugin.kubelet.presence import KubeletState, Registered, absence

_log = logging.getLogger(__name__)


class RegistrationReporter(Protocol):
    """Reports registration to operators."""

    def registration_refused(self, reason: str) -> None:
        """Reports that the kubelet refused to register the plugin."""


class Registration:
    """The registration service of one driver."""

    def __init__(
        self,
        *,
        driver: str,
        endpoint: Path,
        info_requested: Callable[[], None],
        reporter: RegistrationReporter,
        kubelet: Callable[[], KubeletState],
        now: Callable[[], float] = time.time,
    ) -> None:
        """Creates the service. GetInfo calls `info_requested`, which must not block.

        `kubelet` looks whether the kubelet runs; `now` is in seconds of the epoch.
        """
        self._info = pb.PluginInfo(
            type="DRAPlugin",
            name=driver,
            endpoint=str(endpoint),
            supported_versions=(*SUPPORTED_VERSIONS, *HEALTH_VERSIONS),
        )
        self._info_requested = info_requested
        self._reporter = reporter
        self._kubelet = kubelet
        self._now = now
        self._registered: Registered | None = None

    @property
    def absence(self) -> str | None:
        """Why the kubelet does not know the plugin; None if it does, as far as can be told."""
        return absence(self._registered, self._kubelet())

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Returns the handlers for a grpc.Server."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "GetInfo": grpc.unary_unary_rpc_method_handler(
                self.get_info,
                request_deserializer=pb.InfoRequest.FromString,
                response_serializer=pb.PluginInfo.SerializeToString,
            ),
            "NotifyRegistrationStatus": grpc.unary_unary_rpc_method_handler(
                self.notify,
                request_deserializer=pb.RegistrationStatus.FromString,
                response_serializer=pb.RegistrationStatusResponse.SerializeToString,
            ),
        }
        return (grpc.method_handlers_generic_handler("pluginregistration.Registration", methods),)

    def get_info(self, _request: pb.InfoRequest, _context: grpc.ServicerContext) -> pb.PluginInfo:
        """GetInfo."""
        self._info_requested()
        return self._info

    def notify(
        self, request: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """NotifyRegistrationStatus."""
        if request.plugin_registered:
            self._registered = Registered(self._kubelet(), self._now())
            _log.info("registered with the kubelet")
        else:
            self._registered = None
            self._reporter.registration_refused(request.error)
        return pb.RegistrationStatusResponse()
