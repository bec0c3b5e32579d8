"""How the kubelet's calls are answered, claim by claim, within its patience."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import grpc
import pytest

from kubelet_plugin.claims.call import CallLimits
from kubelet_plugin.claims.claim import ClaimReference, PreparedDevice
from kubelet_plugin.claims.failure import (
    AllocationRefused,
    CallerGone,
    ClaimError,
    ClaimFailure,
    GpusNotRead,
    LockBusy,
    LockUnavailable,
)
from kubelet_plugin.kubelet.dra_service import DraService
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb
from tests.fakes.claims import FakeReporter

NOT_YET = LockUnavailable("not yet")


def never(name: str) -> ClaimFailure:
    return AllocationRefused(ClaimReference(f"uid-{name}", "ns", name), "never")


@dataclass
class Script:
    """Claims that fail as often as said, in a time that only pauses let pass."""

    failures: Mapping[str, list[Any]] = field(default_factory=dict)
    """What each try of a claim fails with, None where it succeeds; the last again and again."""
    now: float = 0.0
    stopping: bool = False
    gone_at: float = math.inf
    """When the caller goes."""
    tried: list[str] = field(default_factory=list)
    tried_at: list[float] = field(default_factory=list)
    calls: list[CallLimits] = field(default_factory=list)
    reporter: FakeReporter = field(default_factory=FakeReporter)

    def service(self) -> DraService:
        return DraService(self, reporter=self.reporter, clock=lambda: self.now, pause=self._pause)

    def _pause(self, seconds: float) -> bool:
        self.now += seconds
        return self.stopping

    def _try(self, claim: ClaimReference, call: CallLimits) -> None:
        self.tried.append(claim.name)
        self.tried_at.append(self.now)
        self.calls.append(call)
        left = self.failures.get(claim.name)
        if left:
            failure = left.pop(0) if len(left) > 1 else left[0]
            if failure is not None:
                raise ClaimError(failure)

    def prepare(self, reference: ClaimReference, call: CallLimits) -> tuple[PreparedDevice, ...]:
        self._try(reference, call)
        return (PreparedDevice("gpu", "node", "gpu-0", ("vendor/class=id",), "share"),)

    def unprepare(self, reference: ClaimReference, call: CallLimits) -> None:
        self._try(reference, call)

    def context(self, patience: float = 45.0) -> grpc.ServicerContext:
        script = self

        class Context:
            def time_remaining(self) -> float:
                return patience - script.now

            def is_active(self) -> bool:
                return script.now < script.gone_at

        return cast("grpc.ServicerContext", Context())


def request(*names: str) -> Any:
    return [pb.Claim(namespace="ns", name=name, uid=f"uid-{name}") for name in names]


def test_every_claim_has_its_entry_and_a_failed_one_its_error() -> None:
    script = Script({"bad": [never("bad")]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("bad", "good")), script.context()
    )
    assert set(answer.claims) == {"uid-bad", "uid-good"}
    assert answer.claims["uid-bad"].error == "never"
    assert answer.claims["uid-good"].devices[0] == pb.Device(
        request_names=["gpu"],
        pool_name="node",
        device_name="gpu-0",
        cdi_device_ids=["vendor/class=id"],
        share_id="share",
    )
    assert script.tried == ["bad", "good"]


def test_a_claim_that_a_pod_names_twice_is_prepared_once() -> None:
    script = Script()
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("good", "good")), script.context()
    )
    assert script.tried == ["good"]
    assert len(answer.claims["uid-good"].devices) == 1


def test_what_may_pass_is_tried_again_and_the_rest_is_not() -> None:
    script = Script({"slow": [NOT_YET, NOT_YET, never("slow")]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("slow", "good")), script.context()
    )
    assert answer.claims["uid-slow"].error == "never"
    assert script.tried == ["slow", "good", "slow", "slow"]


def test_gpus_that_cannot_be_read_are_not_waited_for() -> None:
    failure = GpusNotRead(ClaimReference("uid-stuck", "ns", "stuck"), 61.0)
    script = Script({"stuck": [failure]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert answer.claims["uid-stuck"].error == str(failure)
    assert script.tried_at == [0.0]


def test_tries_come_soon_at_first_and_then_every_two_seconds() -> None:
    script = Script({"stuck": [NOT_YET]})
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert script.tried_at[:7] == pytest.approx([0, 0.1, 0.3, 0.8, 1.8, 3.8, 5.8])


@pytest.mark.parametrize("last", [NOT_YET, never("slow"), None], ids=["late", "never", "done"])
def test_the_time_that_a_call_took_counts_all_its_tries(last: ClaimFailure | None) -> None:
    script = Script({"slow": [NOT_YET, NOT_YET, last]}, now=1000.0)
    script.service().unprepare(
        pb.NodeUnprepareResourcesRequest(claims=request("slow")), script.context(1045.0)
    )
    assert script.now > 1000.0
    assert script.reporter.took == [script.now - 1000.0]


def test_trying_ends_before_the_kubelets_patience() -> None:
    script = Script({"stuck": [NOT_YET]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert answer.claims["uid-stuck"].error == "not yet"
    assert 35 <= script.now <= 40
    assert script.reporter.ended == [("prepare", "stuck", NOT_YET)]


@pytest.mark.parametrize("patience", [45.0, 60.0, 1e9], ids=["the kubelet's", "more", "endless"])
def test_a_call_has_a_deadline_however_patient_its_caller(patience: float) -> None:
    script = Script({"stuck": [NOT_YET]})
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context(patience)
    )
    assert {call.deadline for call in script.calls} == {40.0}
    assert 35 <= script.now <= 40


def test_a_clock_that_is_set_back_does_not_lengthen_a_call() -> None:
    script = Script({"stuck": [NOT_YET]})
    context = script.context()
    asked = []

    class SetBack:
        is_active = staticmethod(context.is_active)

        def time_remaining(self) -> float:
            asked.append(script.now)
            return context.time_remaining() + (3600 if script.now > 0 else 0)

    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")),
        cast("grpc.ServicerContext", SetBack()),
    )
    assert asked == [0.0]
    assert script.now <= 40


def test_trying_ends_when_the_caller_has_gone() -> None:
    script = Script({"stuck": [NOT_YET]}, gone_at=3.0)
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert 3.0 <= script.now <= 5.0
    assert script.calls[-1].abandoned()


def test_nothing_is_tried_for_a_caller_that_has_gone() -> None:
    script = Script(gone_at=0.0)
    script.service().unprepare(
        pb.NodeUnprepareResourcesRequest(claims=request("late")), script.context()
    )
    assert script.tried == []
    late = ClaimReference("uid-late", "ns", "late")
    assert script.reporter.ended == [("unprepare", "late", CallerGone(late))]


def test_what_a_claim_waits_for_is_reported_once_and_soon() -> None:
    script = Script({"stuck": [NOT_YET], "brief": [*[NOT_YET] * 4, never("brief")]})
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck", "brief")), script.context()
    )
    assert script.reporter.waits == [("prepare", "stuck", NOT_YET)]


def test_a_claim_that_waits_for_its_turn_is_not_reported() -> None:
    script = Script({"last": [*[LockBusy("calls take turns")] * 12, None]})
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("last")), script.context()
    )
    assert script.tried == ["last"] * 13
    assert script.reporter.waits == []


def test_what_a_claim_waits_for_is_reported_within_seconds() -> None:
    script = Script({"stuck": [NOT_YET]}, gone_at=3.0)
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert script.reporter.waits == [("prepare", "stuck", NOT_YET)]


def test_trying_ends_when_the_plugin_stops() -> None:
    script = Script({"stuck": [NOT_YET]}, stopping=True)
    script.service().unprepare(
        pb.NodeUnprepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert script.tried == ["stuck"]


def test_unprepared_claims_are_reported_without_an_error() -> None:
    script = Script()
    answer = script.service().unprepare(
        pb.NodeUnprepareResourcesRequest(claims=request("one", "two")), script.context()
    )
    assert {uid: entry.error for uid, entry in answer.claims.items()} == {
        "uid-one": "",
        "uid-two": "",
    }
    assert script.reporter.ended == [("unprepare", "one", None), ("unprepare", "two", None)]


def test_a_bug_that_one_claim_meets_leaves_the_others_their_answers() -> None:
    class Buggy(Script):
        def prepare(
            self, reference: ClaimReference, call: CallLimits
        ) -> tuple[PreparedDevice, ...]:
            if reference.name == "odd":
                raise KeyError("odd")
            return super().prepare(reference, call)

    script = Buggy()
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("odd", "good")), script.context()
    )
    assert "failed unexpectedly (KeyError('odd'))" in answer.claims["uid-odd"].error
    assert answer.claims["uid-good"].devices
