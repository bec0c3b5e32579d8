"""What follows when kube-scheduler refuses a pod that the controller has started."""

from typing import Any

import pytest

from carina_dra.resource import ResourceClaim, decode
from controller.act.verdict import DecideAgain, GiveUp, Keep, Verdict, next_verdict, verdicts
from controller.engine.model.pod import Gated, Pending
from controller.engine.model.snapshot import Snapshot
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from tests.unit.controller.bodies import JOB, claim_body, declared_queue, pod_body
from tests.unit.controller.engine.scene import NOW, Scene, gpus_of


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
    found = list(verdicts(mirror, NOW + seconds, 5, is_needed=lambda: False))
    assert [type(each) for each in found] == ([] if expected is None else [expected])
    assert all(not isinstance(each, Keep) and each.node == "n1" for each in found)
    assert next_verdict(mirror, 5) == (None if owner is None else NOW + 5)


@pytest.mark.parametrize(("owner", "state"), [(JOB, Gated()), (None, Pending())])
def test_only_a_pod_that_is_not_pinned_is_decided_again(
    owner: dict[str, Any] | None, state: object
) -> None:
    assert refused(devices=False, owner=owner).state.pods["t/p"].state == state


def test_a_refused_pod_that_has_ended_is_left_alone() -> None:
    mirror = refused(devices=True, owner=JOB, phase="Failed")
    assert list(verdicts(mirror, NOW + 60, 5, is_needed=lambda: False)) == []
    assert next_verdict(mirror, 5) is None


def test_the_loop_wakes_for_the_first_of_several_refusals() -> None:
    mirror = refused(devices=True, owner=JOB)
    mirror.refresh(NOW + 2)
    later = pod_body("later", gates=(), given="n1", verdict="no", owner=JOB)
    mirror.put_pod(read_pod(later))
    mirror.refresh(NOW + 2)
    assert next_verdict(mirror, 5) == NOW + 5


def test_a_pod_that_is_bound_after_all_is_not_evicted() -> None:
    mirror = refused(devices=True, owner=JOB)
    bound = pod_body("p", gates=(), given="n1", node="n1", claims=["c"], owner=JOB, version=2)
    mirror.put_pod(read_pod(bound))
    assert list(verdicts(mirror, NOW + 60, 5, is_needed=lambda: False)) == []


def test_a_refusal_that_is_repeated_lasts_since_the_first() -> None:
    mirror = refused(devices=True, owner=JOB)
    mirror.refresh(NOW + 3)
    again = pod_body("p", gates=(), given="n1", verdict="no", claims=["c"], owner=JOB, version=2)
    mirror.put_pod(read_pod(again))
    assert next_verdict(mirror, 5) == NOW + 5
