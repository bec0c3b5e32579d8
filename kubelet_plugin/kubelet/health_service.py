"""The health services that the kubelet calls, v1 and v1alpha1 (KEP-4680).

The kubelet opens a stream and shows the health of each device in the status of the pods that have
it. It knows a device by pool and name: all shares of a GPU have one health. Both versions have the
same messages on the wire, so both use those of v1 (field numbers in proto/).

A device of which the kubelet has not heard for its timeout becomes Unknown, but the kubelet looks
only when it next handles the pod (kubernetes #140819). So every report has all devices, is repeated
in time, and says itself that the health is unknown when the plugin stops.
"""

import contextlib
import math
import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias, assert_never

import grpc

from kubelet_plugin.claim_status.device_health import (
    DeviceHealth,
    HealthUnknown,
    Healthy,
    Unhealthy,
)
from kubelet_plugin.claim_status.live_claims import ClaimsNow, LiveClaims
from kubelet_plugin.kubelet.pb import dra_health_v1_pb2 as pb

HEALTH_VERSIONS: Final = ("v1.DRAResourceHealth", "v1alpha1.DRAResourceHealth")
"""The services as named in registration: since 1.37 the kubelet opens no stream without it."""

TIMEOUT: Final = 30
"""Seconds after which the kubelet takes the health of a device for unknown, its own default."""
_REPEAT: Final = TIMEOUT / 3
_MOST_STREAMS: Final = 4
"""A kubelet has one stream. Another may be left of one that was restarted, and each is a thread."""
_STOPPING: Final = HealthUnknown("PluginStopped", "the driver's plugin on the node is stopping")

PoolDevice: TypeAlias = tuple[str, str]
"""Pool and name."""


class HealthService:
    """Serves both versions of the health service."""

    def __init__(
        self, claims: LiveClaims, *, clock: Callable[[], float], now: Callable[[], float]
    ) -> None:
        """`clock` is monotonic, in seconds; `now` is the time in Unix seconds."""
        self._claims = claims
        self._clock = clock
        self._now = now
        self._streams: list[grpc.ServicerContext] = []
        self._lock = threading.Lock()

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Returns the handlers for a grpc.Server."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "NodeWatchResources": grpc.unary_stream_rpc_method_handler(
                self.watch,
                request_deserializer=pb.NodeWatchResourcesRequest.FromString,
                response_serializer=pb.NodeWatchResourcesResponse.SerializeToString,
            )
        }
        return tuple(
            grpc.method_handlers_generic_handler(service, methods) for service in HEALTH_VERSIONS
        )

    def watch(
        self, _request: pb.NodeWatchResourcesRequest, context: grpc.ServicerContext
    ) -> Iterator[pb.NodeWatchResourcesResponse]:
        """NodeWatchResources: the health of all devices of recorded claims.

        It is sent at once, when it changes, and repeatedly, until the plugin stops.
        """
        with self._lock:
            self._streams.append(context)
            if len(self._streams) > _MOST_STREAMS:
                # A reader that is gone or has stalled keeps its thread until it is cancelled.
                self._streams.pop(0).cancel()
        try:
            if context.add_callback(self._claims.wake):
                yield from self._reports(context)
        finally:
            with self._lock, contextlib.suppress(ValueError):
                self._streams.remove(context)

    def _reports(self, context: grpc.ServicerContext) -> Iterator[pb.NodeWatchResourcesResponse]:
        sent: Mapping[PoolDevice, DeviceHealth] | None = None
        sent_at = -math.inf
        while context.is_active():
            seen = self._claims.now
            healths = device_healths(seen)
            if healths != sent or self._clock() - sent_at >= _REPEAT:
                sent, sent_at = healths, self._clock()
                yield self._report(healths)
            if seen.stopped:
                return
            self._claims.wait(seen.version, max(0.0, sent_at + _REPEAT - self._clock()))

    def _report(self, healths: Mapping[PoolDevice, DeviceHealth]) -> pb.NodeWatchResourcesResponse:
        at = int(self._now())
        return pb.NodeWatchResourcesResponse(
            devices=[
                pb.DeviceHealth(
                    device=pb.DeviceIdentifier(pool_name=pool, device_name=device),
                    health=_status(health),
                    last_updated_time=at,
                    health_check_timeout_seconds=TIMEOUT,
                    message=health.message,
                )
                for (pool, device), health in healths.items()
            ]
        )


def device_healths(seen: ClaimsNow) -> Mapping[PoolDevice, DeviceHealth]:
    """Returns the health of each device that a recorded claim has, also with admin access."""
    ids = sorted(
        {
            (allocated.pool, allocated.device)
            for claim in seen.claims.values()
            for allocated in claim.devices
        }
    )
    return {
        (pool, device): _STOPPING if seen.stopped else seen.gpus.health(device)
        for pool, device in ids
    }


def _status(health: DeviceHealth) -> pb.HealthStatus:
    match health:
        case Healthy():
            return pb.HEALTHY
        case Unhealthy():
            return pb.UNHEALTHY
        case HealthUnknown():
            return pb.UNKNOWN
    assert_never(health)
