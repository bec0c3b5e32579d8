"""How the kubelet comes to know the plugin (pluginregistration/v1).

The kubelet finds the registration socket, asks for the plugin's info, and says how that went. Being
asked is also the sign that the kubelet has just started, after having deleted every ResourceSlice
of the node.
"""

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Protocol

import grpc

from kubelet_plugin.kubelet.dra_service import SUPPORTED_VERSIONS
from kubelet_plugin.kubelet.pb import plugin_registration_v1_pb2 as pb

_log = logging.getLogger(__name__)


class Reporter(Protocol):
    """Hears of what an operator should know."""

    def registration_refused(self, reason: str) -> None:
        """The kubelet does not take the plugin."""


class Registration:
    """Answers the kubelet's questions about one driver."""

    def __init__(
        self, *, driver: str, endpoint: Path, asked: Callable[[], None], reporter: Reporter
    ) -> None:
        """`asked` is called, and must return at once, whenever the kubelet asks for the info."""
        self._info = pb.PluginInfo(
            type="DRAPlugin",
            name=driver,
            endpoint=str(endpoint),
            supported_versions=SUPPORTED_VERSIONS,
        )
        self._asked = asked
        self._reporter = reporter
        self._registered = False

    @property
    def registered(self) -> bool:
        """Whether the kubelet's last word was that it has registered the plugin."""
        return self._registered

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Gives what a grpc.Server is to serve."""
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
        self._asked()
        return self._info

    def notify(
        self, request: pb.RegistrationStatus, _context: grpc.ServicerContext
    ) -> pb.RegistrationStatusResponse:
        """NotifyRegistrationStatus."""
        self._registered = request.plugin_registered
        if request.plugin_registered:
            _log.info("registered with the kubelet")
        else:
            self._reporter.registration_refused(request.error)
        return pb.RegistrationStatusResponse()
