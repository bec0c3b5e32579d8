"""How the kubelet's calls are answered, claim by claim, within its patience."""

from dataclasses import dataclass, field
from typing import Any, cast

import grpc

from kubelet_plugin.claims.claim import ClaimError, ClaimReference, PreparedDevice
from kubelet_plugin.kubelet.dra_service import DraService, Operation
from kubelet_plugin.kubelet.pb import dra_v1_pb2 as pb


@dataclass
class Script:
    """Claims that fail as often as said, in a time that only pauses let pass."""

    failures: dict[str, list[ClaimError]] = field(default_factory=dict)
    now: float = 0.0
    stopping: bool = False
    tried: list[str] = field(default_factory=list)
    waits: list[tuple[float, Operation, str, str]] = field(default_factory=list)
    ended: list[tuple[Operation, str, str | None]] = field(default_factory=list)

    def service(self) -> DraService:
        return DraService(self, reporter=self, clock=lambda: self.now, pause=self._pause)

    def _pause(self, seconds: float) -> bool:
        self.now += seconds
        return self.stopping

    def _try(self, claim: ClaimReference) -> None:
        self.tried.append(claim.name)
        left = self.failures.get(claim.name)
        if left:
            raise left.pop(0) if len(left) > 1 else left[0]

    def prepare(self, claim: ClaimReference) -> tuple[PreparedDevice, ...]:
        self._try(claim)
        return (PreparedDevice("gpu", "node", "gpu-0", ("vendor/class=id",), "share"),)

    def unprepare(self, claim: ClaimReference) -> None:
        self._try(claim)

    def call_waits(self, operation: Operation, claim: ClaimReference, error: ClaimError) -> None:
        self.waits.append((self.now, operation, claim.name, str(error)))

    def call_ended(
        self, operation: Operation, claim: ClaimReference, seconds: float, error: ClaimError | None
    ) -> None:
        self.ended.append((operation, claim.name, None if error is None else str(error)))

    def context(self, patience: float = 45.0) -> grpc.ServicerContext:
        script = self

        class Context:
            def time_remaining(self) -> float:
                return patience - script.now

        return cast("grpc.ServicerContext", Context())


def request(*names: str) -> Any:
    return [pb.Claim(namespace="ns", name=name, uid=f"uid-{name}") for name in names]


def test_every_claim_has_its_entry_and_a_failed_one_its_error() -> None:
    script = Script({"bad": [ClaimError("no such field", may_pass=False)]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("bad", "good")), script.context()
    )
    assert set(answer.claims) == {"uid-bad", "uid-good"}
    assert answer.claims["uid-bad"].error == "no such field"
    assert answer.claims["uid-good"].devices[0] == pb.Device(
        request_names=["gpu"],
        pool_name="node",
        device_name="gpu-0",
        cdi_device_ids=["vendor/class=id"],
        share_id="share",
    )
    assert script.tried == ["bad", "good"]


def test_what_may_pass_is_tried_again_and_the_rest_is_not() -> None:
    passing = ClaimError("not yet", may_pass=True)
    script = Script({"slow": [passing, passing, ClaimError("never", may_pass=False)]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("slow", "good")), script.context()
    )
    assert answer.claims["uid-slow"].error == "never"
    assert script.tried == ["slow", "good", "slow", "slow"]


def test_trying_ends_before_the_kubelets_patience() -> None:
    script = Script({"stuck": [ClaimError("not yet", may_pass=True)]})
    answer = script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert answer.claims["uid-stuck"].error == "not yet"
    assert 35 <= script.now <= 40
    assert script.ended == [("prepare", "stuck", "not yet")]


def test_what_a_claim_waits_for_is_told_once_and_soon() -> None:
    passing = ClaimError("not yet", may_pass=True)
    never = ClaimError("never", may_pass=False)
    script = Script({"stuck": [passing], "brief": [passing, passing, never]})
    script.service().prepare(
        pb.NodePrepareResourcesRequest(claims=request("stuck", "brief")), script.context()
    )
    ((at, *told),) = script.waits
    assert told == ["prepare", "stuck", "not yet"]
    assert 1.5 < at < 5


def test_trying_ends_when_the_plugin_stops() -> None:
    script = Script({"stuck": [ClaimError("not yet", may_pass=True)]}, stopping=True)
    script.service().unprepare(
        pb.NodeUnprepareResourcesRequest(claims=request("stuck")), script.context()
    )
    assert script.tried == ["stuck"]


def test_unprepared_claims_are_told_without_an_error() -> None:
    script = Script()
    answer = script.service().unprepare(
        pb.NodeUnprepareResourcesRequest(claims=request("one", "two")), script.context()
    )
    assert {uid: entry.error for uid, entry in answer.claims.items()} == {
        "uid-one": "",
        "uid-two": "",
    }
    assert script.ended == [("unprepare", "one", None), ("unprepare", "two", None)]
