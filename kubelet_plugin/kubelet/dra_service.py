"""The DRA services that the kubelet calls, v1 and v1beta1.

On the wire, v1beta1 is v1 without `share_id`, a field that an older kubelet ignores. So both
versions use v1's messages (KEP-4381; field numbers in proto/). If a claim fails, its own entry in
the response has an `error`; the other claims of the call are not affected.

The kubelet waits 45 s for a response, but repeats a failed call only after 60 to 90 s. Therefore
the service itself retries failures that may pass soon while the kubelet waits, and reports them in
an Event.
"""

import logging
from collections.abc import Callable, Iterable, Sequence
from itertools import chain, repeat
from typing import Any, Literal, Protocol, TypeAlias

import grpc

from kubelet_plugin.claims.call import CallLimits
from kubelet_plugin.claims.claim import ClaimReference, PreparedDevice
from kubelet_plugin.claims.failure import (
    CallerGone,
    ClaimError,
    ClaimFailure,
    GpusNotRead,
    LockBusy,
    NodeReleased,
    UnexpectedError,
)
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb

SUPPORTED_VERSIONS = ("v1.DRAPlugin", "v1beta1.DRAPlugin")
"""The services as named in registration; the kubelet uses the first one that it supports."""

_SERVICES = tuple(f"k8s.io.kubelet.pkg.apis.dra.{version}" for version in SUPPORTED_VERSIONS)
_log = logging.getLogger(__name__)

_LONGEST_CALL = 45.0
"""Seconds for which the kubelet waits; also the limit for a call without a deadline."""
_RESERVE = 5.0
"""Seconds of this that are reserved for the last attempt and the response."""
_PAUSES = (0.1, 0.2, 0.5, 1.0, 2.0)
"""Seconds between attempts; the last value is repeated."""
_SHORT = 1.5
"""Seconds for which a call is retried without an Event."""


ClaimOperation: TypeAlias = Literal["prepare", "unprepare"]


class CallReporter(Protocol):
    """Reports calls to operators."""

    def call_retried(
        self, operation: ClaimOperation, claim: ClaimReference, failure: ClaimFailure
    ) -> None:
        """Reports that a call for a claim has failed for a while, and is being retried."""

    def call_ended(
        self,
        operation: ClaimOperation,
        claim: ClaimReference,
        seconds: float,
        failure: ClaimFailure | None,
    ) -> None:
        """Reports the result of a call for a claim, after all attempts."""


class NodeClaims(Protocol):
    """Carries out one attempt of a call."""

    def prepare(self, reference: ClaimReference, call: CallLimits) -> tuple[PreparedDevice, ...]:
        """Prepares a claim, if it is not prepared; raises ClaimError."""

    def unprepare(self, reference: ClaimReference, call: CallLimits) -> None:
        """Unprepares a claim, if it is prepared; raises ClaimError."""


class DraService:
    """Serves both versions of the DRA service."""

    def __init__(
        self,
        claims: NodeClaims,
        *,
        reporter: CallReporter,
        clock: Callable[[], float],
        pause: Callable[[float], bool],
    ) -> None:
        """`clock` is monotonic, in seconds.

        `pause` waits for a number of seconds, or returns True at once if the plugin stops.
        """
        self._claims = claims
        self._reporter = reporter
        self._clock = clock
        self._pause = pause

    def handlers(self) -> tuple[grpc.GenericRpcHandler, ...]:
        """Returns the handlers for a grpc.Server."""
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

        def once(claim: ClaimReference, call: CallLimits) -> None:
            prepared = self._claims.prepare(claim, call)
            response.claims[claim.uid].devices.extend(
                pb.Device(
                    request_names=[device.request],
                    pool_name=device.pool,
                    device_name=device.device,
                    cdi_device_ids=device.cdi_ids,
                    share_id=device.share_id,
                )
                for device in prepared
            )

        failures = self._carry_out("prepare", _references(request.claims), once, context)
        for claim, failure in failures:
            response.claims[claim.uid].error = str(failure)
        return response

    def unprepare(
        self, request: pb.NodeUnprepareResourcesRequest, context: grpc.ServicerContext
    ) -> pb.NodeUnprepareResourcesResponse:
        """NodeUnprepareResources."""
        response = pb.NodeUnprepareResourcesResponse()

        def once(claim: ClaimReference, call: CallLimits) -> None:
            self._claims.unprepare(claim, call)
            response.claims[claim.uid].error = ""

        failures = self._carry_out("unprepare", _references(request.claims), once, context)
        for claim, failure in failures:
            response.claims[claim.uid].error = str(failure)
        return response

    def _carry_out(
        self,
        operation: ClaimOperation,
        claims: Sequence[ClaimReference],
        once: Callable[[ClaimReference, CallLimits], None],
        context: grpc.ServicerContext,
    ) -> list[tuple[ClaimReference, ClaimFailure]]:
        """Calls `once` for each claim, and again for claims whose failure is retriable.

        Returns the claims that failed in the end.
        """
        begun = self._clock()
        call = _call(context, begun)
        failed: list[tuple[ClaimReference, ClaimFailure]] = []
        pending = claims
        announced: set[str] = set()
        for pause in chain(_PAUSES, repeat(_PAUSES[-1])):
            waiting: list[tuple[ClaimReference, ClaimFailure]] = []
            for claim in pending:
                failure = _try(once, claim, call)
                if failure is None:
                    self._reporter.call_ended(operation, claim, self._clock() - begun, None)
                elif _may_pass_soon(failure):
                    waiting.append((claim, failure))
                else:
                    failed.append((claim, failure))
            if not waiting:
                break
            if self._clock() - begun > _SHORT:
                self._announce(operation, waiting, announced)
            no_time = self._clock() + pause > call.deadline
            if no_time or call.abandoned() or self._pause(pause):
                failed += waiting
                break
            pending = [claim for claim, _ in waiting]
        for claim, failure in failed:
            self._reporter.call_ended(operation, claim, self._clock() - begun, failure)
        return failed

    def _announce(
        self,
        operation: ClaimOperation,
        waiting: Iterable[tuple[ClaimReference, ClaimFailure]],
        announced: set[str],
    ) -> None:
        """Reports, once for each claim, why its call is being retried.

        A call that waits for its turn is as it should be.
        """
        for claim, failure in waiting:
            if claim.uid not in announced and not isinstance(failure, LockBusy):
                announced.add(claim.uid)
                self._reporter.call_retried(operation, claim, failure)


def _try(
    once: Callable[[ClaimReference, CallLimits], None], claim: ClaimReference, call: CallLimits
) -> ClaimFailure | None:
    if call.abandoned():
        return CallerGone(claim)
    try:
        once(claim, call)
    except ClaimError as error:
        return error.failure
    except Exception as error:  # noqa: BLE001 - a bug; it must not affect the call's other claims
        _log.exception("a call failed unexpectedly", extra={"claim": claim.key, "uid": claim.uid})
        return UnexpectedError(claim, repr(error))
    return None


def _may_pass_soon(failure: ClaimFailure) -> bool:
    """Returns whether to try again while the kubelet waits.

    A driver that has not responded for long, or that is released, is not waited for: the kubelet
    can send other calls.
    """
    return failure.retriable and not isinstance(failure, GpusNotRead | NodeReleased)


def _call(context: grpc.ServicerContext, now: float) -> CallLimits:
    """Reads the deadline once, because gRPC's remaining time follows changes of the wall clock."""
    patience = min(_LONGEST_CALL, context.time_remaining()) - _RESERVE
    return CallLimits(deadline=now + patience, abandoned=lambda: not context.is_active())


def _references(claims: Iterable[pb.Claim]) -> tuple[ClaimReference, ...]:
    """Returns each claim once; the kubelet repeats a claim to which a pod gives several names."""
    references = (ClaimReference(claim.uid, claim.namespace, claim.name) for claim in claims)
    return tuple(dict.fromkeys(references))
