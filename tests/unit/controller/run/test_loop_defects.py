"""A defect that one object meets in the loop reaches no other object, and ends nothing."""

from collections.abc import Callable
from typing import Any

import pytest

from carina_dra.kube.errors import ApiOperation, Conflict
from controller.act import commit, parting, verdict
from controller.act.writer import CommitFailed, Committed, EvictionEnded, Released
from controller.observe.mirror import Mirror
from controller.report.notice import ObjectSetAside
from controller.run import loop as loop_module
from tests.unit.controller.bodies import JOB
from tests.unit.controller.engine.scene import gpus_of
from tests.unit.controller.run.test_loop_decisions import REFUSED, Controller

OPERATION = ApiOperation("patch", "pods")


def fails_for(
    monkeypatch: pytest.MonkeyPatch, owner: Any, name: str, *keys: str
) -> Callable[[], None]:
    """Has a function fail for some objects, until what it returns is called."""
    original = getattr(owner, name)

    def failing(*arguments: Any, **named: Any) -> Any:
        if any(getattr(each, "key", each) in keys for each in arguments if each.__hash__):
            raise RuntimeError("a defect")
        return original(*arguments, **named)

    monkeypatch.setattr(owner, name, failing)
    return lambda: monkeypatch.setattr(owner, name, original)


def set_aside(controller: Controller) -> dict[str, int]:
    return dict(controller.mirror.set_aside.counts())


def test_a_refused_pod_that_cannot_be_judged_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller()
    for name in ("bad", "good"):
        controller.pod(name, **REFUSED)
    controller.step()
    repair = fails_for(monkeypatch, verdict, "_verdict", "t/bad")
    controller.step(5)
    assert [pod.name for pod in controller.written.evicted] == ["good"]
    assert set_aside(controller) == {"pods": 1}
    assert controller.patience() > 0
    repair()
    controller.step(10)
    assert [pod.name for pod in controller.written.evicted] == ["good", "bad"]
    assert set_aside(controller) == {}


def test_a_verdict_that_cannot_be_followed_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller()
    for name in ("bad", "good"):
        controller.pod(name, **REFUSED)
    controller.step()
    fails_for(monkeypatch, Mirror, "refuse", "t/bad")
    controller.step(5)
    assert [pod.name for pod in controller.written.evicted] == ["good"]
    assert controller.patience() > 0


def test_a_claim_that_cannot_leave_a_device_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller()
    for node, name in (("n1", "bad"), ("n2", "good")):
        for claim in (name, f"z-{name}"):
            controller.claim(claim, allocation=gpus_of(node, 0), reserved_for=[claim])
            controller.pod(claim, claims=[claim], gates=(), node=node, given=node, owner=JOB)
    fails_for(monkeypatch, parting, "_partings_of", "t/z-bad")
    controller.step()
    assert [pod.name for pod in controller.written.evicted] == ["z-good"]
    assert set_aside(controller) == {"resourceclaims.resource.k8s.io": 1}
    fails_for(monkeypatch, parting, "_holder_of", "t/bad")
    controller.step(30)
    assert set_aside(controller) == {"resourceclaims.resource.k8s.io": 1, "devices": 1}


@pytest.mark.parametrize("function", ["_is_ready", "_assumed", "PodStart"])
def test_a_group_whose_start_cannot_be_made_keeps_no_other_from_it_nor_from_its_devices(
    monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    controller = Controller()
    controller.claim("c-bad")
    bad = controller.pod("bad", claims=["c-bad"])
    original = getattr(commit, function)

    def failing(*arguments: Any, **named: Any) -> Any:
        if bad in arguments or "t/bad" in str(arguments[1:3]) or "t/pod/bad" in arguments:
            raise RuntimeError("a defect")
        return original(*arguments, **named)

    monkeypatch.setattr(commit, function, failing)
    controller.step()
    for name in ("one", "two"):
        controller.claim(f"c-{name}")
        controller.pod(name, claims=[f"c-{name}"])
    controller.step()
    assert [each.group for each in controller.written.commits] == ["t/pod/one", "t/pod/two"]
    assert set_aside(controller) == {"groups": 1}
    monkeypatch.setattr(commit, function, original)
    for each in controller.written.commits:
        controller.loop.take(CommitFailed(each, Conflict(OPERATION, "")))
    controller.step(11)
    assert "t/pod/bad" in {each.group for each in controller.written.commits}


def test_a_start_that_cannot_be_assumed_counts_for_nobody(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    controller = Controller()
    for name in ("bad", "good"):
        controller.claim(f"c-{name}")
        controller.pod(name, claims=[f"c-{name}"])
    fails_for(monkeypatch, Mirror, "assume", "t/bad")
    controller.step()
    assert [each.group for each in controller.written.commits] == ["t/pod/good"]
    assert controller.mirror.assumed.keys() == {"t/good"}


@pytest.mark.parametrize("outcome", ["committed", "released", "evicted"])
def test_an_outcome_that_cannot_be_taken_ends_nothing(
    monkeypatch: pytest.MonkeyPatch, outcome: str
) -> None:
    controller = Controller()
    controller.claim("c")
    pod = controller.pod("p", claims=["c"])
    controller.step()

    def fail(*_: Any, **__: Any) -> None:
        raise RuntimeError("a defect")

    for method in ("forget", "end_release", "forget_eviction"):
        monkeypatch.setattr(Mirror, method, fail)
    error = Conflict(OPERATION, "")
    (start,) = controller.written.commits
    claim = controller.mirror.claims["t/c"]
    outcomes: dict[str, Any] = {
        "committed": Committed(start),
        "released": Released(claim, error),
        "evicted": EvictionEnded(pod, None, error),
    }
    controller.loop.take(outcomes[outcome])
    assert sum(set_aside(controller).values()) == 1


def test_an_unexpected_error_of_a_write_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    controller = Controller()
    controller.claim("c")
    controller.pod("p", claims=["c"])
    controller.step()
    (start,) = controller.written.commits
    for _ in range(100):
        controller.loop.take(CommitFailed(start, ZeroDivisionError()))
    assert len([each for each in caplog.records if each.exc_info]) == 1


def test_a_report_that_fails_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise RuntimeError("a defect")

    controller = Controller()
    monkeypatch.setattr(loop_module, "access_of", fail)
    controller.claim("c")
    controller.pod("p", claims=["c"])
    controller.step()
    assert [each.group for each in controller.written.commits] == ["t/pod/p"]
    assert set_aside(controller) == {"reports": 1}


def test_an_event_says_that_an_object_is_set_aside(monkeypatch: pytest.MonkeyPatch) -> None:
    controller = Controller()
    controller.pod("bad", **REFUSED)
    controller.step()
    fails_for(monkeypatch, verdict, "_verdict", "t/bad")
    controller.step(5)
    controller.step(10)
    controller.inbox.do(0)
    ((about, notice),) = controller.events.told
    assert about.name == "bad"
    assert notice == ObjectSetAside("judged", "RuntimeError")
