"""The DRA services that the kubelet calls, v1 and v1beta1.

On the wire v1beta1 is v1 without `share_id`, a field that an older kubelet skips, so v1's messages
serve both (KEP-4381; field numbers in proto/). A failed claim is an `error` in its own entry: the
other claims of the call stand.

The kubelet waits 45 s for an answer, but asks again only after 60 to 90 s. So a failure that may
pass by itself is tried again here, for as long as the kubelet waits; who looks at the claim is told
meanwhile what it waits for.
"""

from collections.abc import Callable, Iterable
from itertools import chain, repeat
from typing import Any, Literal, Protocol, TypeAlias

import grpc

from kubelet_plugin.claims.claim import ClaimError, ClaimReference, GrantedDevice
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb

SUPPORTED_VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""As registration names the services; the kubelet takes the first that it knows."""

_SERVICES = tuple(f"k8s.io.kubelet.pkg.apis.dra.{version}" for version in SUPPORTED_VERSIONS)
_KUBELET_PATIENCE = 45.0
_RESERVE = 5.0
"""Seconds of the kubelet's patience that are left for the last try and the answer."""
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between tries; the last again and again."""
_SHORT = 1.5
"""Seconds of trying again that nobody needs to be told of."""


Operation: TypeAlias = Literal["prepare", "unprepare"]


class CallReporter(Protocol):
    """Hears how calls went."""

    def call_waits(self, operation: Operation, claim: ClaimReference, error: ClaimError) -> None:
        """A call for one claim has failed for a while, and goes on trying."""

    def call_ended(
        self, operation: Operation, claim: ClaimReference, seconds: float, error: ClaimError | None
    ) -> None:
        """A call for one claim is over, tries and all."""


class NodeClaims(Protocol):
    """What carries a call out, once."""

    def prepare(self, claim: ClaimReference) -> tuple[GrantedDevice, ...]:
        """Prepares a claim, or finds it prepared; raises ClaimError."""

    def unprepare(self, claim: ClaimReference) -> None:
        """Undoes that, or finds nothing to undo; raises ClaimError."""


class DraService:
    """Answers both versions of the service from one NodeClaims."""

    def __init__(
        self,
        claims: NodeClaims,
        *,
        reporter: CallReporter,
        clock: Callable[[], float],
        pause: Callable[[float], bool],
    ) -> None:
        """`pause` waits so many seconds, and says True when waiting is over for good."""
        self._claims = claims
        self._reporter = reporter
        self._clock = clock
        self._pause = pause

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Gives what a grpc.Server is to serve."""
        methods: dict[str, grpc.RpcMethodHandler[Any, Any]] = {
            "NodePrepareResources": grpc.unary_unary_rpc_method_handler(
                self.prepare,
                request_deserializer=pb.NodePrepareResourcesRequest.FromString,
                response_serializer=pb.NodePrepareResourcesResponse.SerializeToString,
            ),
            "NodeUnprepareResources": grpc.unary_unary_rpc_method_handler(
                self.unprepare,
                request_deserializer=pb.NodeUnprepareResourcesRequest.FromString,
                response_serializer=pb.NodeUnprepareResourcesResponse.SerializeToString,
            ),
        }
        return tuple(
            grpc.method_handlers_generic_handler(service, methods) for service in _SERVICES
        )

    def prepare(
        self, request: pb.NodePrepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodePrepareResourcesResponse:
        """NodePrepareResources."""
        response = pb.NodePrepareResourcesResponse()

        def once(claim: ClaimReference) -> None:
            granted = self._claims.prepare(claim)
            response.claims[claim.uid].devices.extend(
                pb.Device(
                    request_names=[device.request],
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=device.cdi_ids,
                    share_id=device.share_id,
                )
                for device in granted
            )

        for claim, error in self._each("prepare", _references(request.claims), once, context):
            response.claims[claim.uid].error = str(error)
        return response

    def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """NodeUnprepareResources."""
        response = pb.NodeUnprepareResourcesResponse()

        def once(claim: ClaimReference) -> None:
            self._claims.unprepare(claim)
            response.claims[claim.uid].error = ""

        for claim, error in self._each("unprepare", _references(request.claims), once, context):
            response.claims[claim.uid].error = str(error)
        return response

    def _each(
        self,
        operation: Operation,
        claims: tuple[ClaimReference, ...],
        once: Callable[[ClaimReference], None],
        context: grpc.ServicerContext,
    ) -> tuple[tuple[ClaimReference, ClaimError], ...]:
        """Does `once` for each claim, again for those whose failure may pass; gives what failed."""
        begun = self._clock()
        failed: list[tuple[ClaimReference, ClaimError]] = []
        pending = claims
        told: set[str] = set()
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            passing: list[tuple[ClaimReference, ClaimError]] = []
            for claim in pending:
                try:
                    once(claim)
                except ClaimError as error:
                    (passing if error.may_pass else failed).append((claim, error))
                else:
                    self._reporter.call_ended(operation, claim, self._clock() - begun, None)
            if passing and _patience(context) >= pause:
                if self._clock() - begun > _SHORT:
                    self._tell(operation, passing, told)
                if not self._pause(pause):
                    pending = tuple(claim for claim, _ in passing)
                    continue
            failed += passing
            break
        for claim, reason in failed:
            self._reporter.call_ended(operation, claim, self._clock() - begun, reason)
        return tuple(failed)

    def _tell(
        self,
        operation: Operation,
        waiting: list[tuple[ClaimReference, ClaimError]],
        told: set[str],
    ) -> None:
        """Says once of each claim what it waits for."""
        for claim, error in waiting:
            if claim.uid not in told:
                told.add(claim.uid)
                self._reporter.call_waits(operation, claim, error)


def _references(claims: Iterable[pb.Claim]) -> tuple[ClaimReference, ...]:
    return tuple(ClaimReference(claim.uid, claim.namespace, claim.name) for claim in claims)


def _patience(context: grpc.ServicerContext) -> float:
    """Seconds that the caller will still wait, less the reserve."""
    return min(_KUBELET_PATIENCE, context.time_remaining()) - _RESERVE
