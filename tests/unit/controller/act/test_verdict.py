"""What follows when kube-scheduler refuses a pod that the controller has started."""

from typing import Any

import pytest

from carina_dra.resource import ResourceClaim, decode
from controller.act.verdict import DecideAgain, GiveUp, Verdict, next_verdict, verdicts
from controller.model.pod import Gated, Pending
from controller.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.scene import NOW, Scene, gpus_of


def refused(*, devices: bool, **fields: Any) -> Mirror:
    """A cluster with a pod that was started on n1, and is refused since now."""
    mirror = Mirror(Snapshot(now=NOW, settings=Scene().settings))
    mirror.put_queue("q", declared_queue())
    allocation = gpus_of("n1", 0) if devices else None
    mirror.put_claim(decode(ResourceClaim, claim_body("c", allocation=allocation)))
    body = pod_body("p", gates=(), given="n1", verdict="no", claims=["c"], **fields)
    mirror.put_pod(read_pod(body))
    mirror.refresh(NOW)
    return mirror


@pytest.mark.parametrize(
    ("owner", "devices", "seconds", "expected"),
    [
        pytest.param(JOB, True, 4, None, id="pinned, may be transient"),
        pytest.param(JOB, True, 5, GiveUp, id="pinned"),
        pytest.param(JOB, False, 4, None, id="pinned, kube-scheduler may allocate again"),
        pytest.param(JOB, False, 5, GiveUp, id="pinned, taken back"),
        pytest.param(None, True, 60, None, id="not pinned, keeps its devices"),
        pytest.param(None, False, 0, DecideAgain, id="not pinned, taken back"),
    ],
)
def test_what_follows_from_a_refusal(
    owner: dict[str, Any] | None, *, devices: bool, seconds: float, expected: type[Verdict] | None
) -> None:
    mirror = refused(devices=devices, owner=owner)
    found = list(verdicts(mirror, NOW + seconds, 5))
    assert [type(each) for each in found] == ([] if expected is None else [expected])
    assert all(each.node == "n1" for each in found)
    assert next_verdict(mirror, 5) == (None if owner is None else NOW + 5)


@pytest.mark.parametrize(("owner", "state"), [(JOB, Gated()), (None, Pending())])
def test_only_a_pod_that_is_not_pinned_is_decided_again(
    owner: dict[str, Any] | None, state: object
) -> None:
    assert refused(devices=False, owner=owner).state.pods["t/p"].state == state
