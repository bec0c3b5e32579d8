"""A probe that calls the plugin on its sockets, as the kubelet does.

The call is NodePrepareResources without claims; GetInfo would count as a kubelet that has just
started. Each probe opens its own connections, because an open connection does not fail when the
file of its socket is removed.
"""

from pathlib import Path
from typing import Final

import grpc

from carina_dra.process.http_endpoint import Probe
from kubelet_plugin.kubelet.dra_service import SUPPORTED_VERSIONS
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb

_TIMEOUT: Final = 5.0
"""Seconds."""
_METHOD: Final = f"/k8s.io.kubelet.pkg.apis.dra.{SUPPORTED_VERSIONS[0]}/NodePrepareResources"
_OPTIONS: Final = (
    ("grpc.use_local_subchannel_pool", 1),  # or connections and their back-off would be shared
    ("grpc.enable_retries", 0),
)


def socket_probe(*paths: Path, timeout: float = _TIMEOUT) -> Probe:
    """Returns a probe that calls the plugin on each socket; each call has `timeout` seconds."""

    def probe() -> str | None:
        for path in paths:
            try:
                _call(path, timeout)
            except grpc.RpcError as error:
                return f"{path} does not respond: {error.code().name}: {error.details()}"
        return None

    return probe


def _call(path: Path, timeout: float) -> None:
    with grpc.insecure_channel(f"unix:{path}", options=_OPTIONS) as channel:
        prepare: grpc.UnaryUnaryMultiCallable[
            pb.NodePrepareResourcesRequest, pb.NodePrepareResourcesResponse
        ] = channel.unary_unary(
            _METHOD,
            request_serializer=pb.NodePrepareResourcesRequest.SerializeToString,
            response_deserializer=pb.NodePrepareResourcesResponse.FromString,
        )
        prepare(pb.NodePrepareResourcesRequest(), timeout=timeout)
