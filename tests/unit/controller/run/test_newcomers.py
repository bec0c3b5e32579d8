"""Where pods wait that a decision has not seen yet."""

import pytest

from carina_dra.kube.api_resource import PODS
from controller.engine.model.snapshot import Snapshot
from controller.names import GATE
from controller.observe.mirror import Mirror
from controller.observe.pod import read_pod
from controller.run.newcomers import Newcomers
from controller.run.subjects import subjects
from tests.unit.controller.bodies import pod_body


def test_a_namespace_counts_until_a_decision_has_seen_it() -> None:
    newcomers = Newcomers()
    newcomers.note("a")
    assert newcomers.are_besides(())
    newcomers.seen()
    assert not newcomers.are_besides(())


def test_those_of_other_namespaces_are_told_apart() -> None:
    newcomers = Newcomers()
    newcomers.note("a")
    assert not newcomers.are_besides({"a"})
    newcomers.note("b")
    assert newcomers.are_besides({"a"})


@pytest.mark.parametrize(
    ("queue", "gates", "is_newcomer"),
    [("q", [GATE], True), ("q", [], False), (None, [GATE], False)],
    ids=["it waits", "it has started", "it has no queue"],
)
def test_the_watch_of_pods_notes_those_that_wait_in_a_queue(
    queue: str | None, gates: list[str], *, is_newcomer: bool
) -> None:
    newcomers = Newcomers()
    followed = subjects(Mirror(Snapshot(now=0)), newcomers=newcomers)
    (pods,) = (subject for subject in followed if subject.resource == PODS)
    pods.delivered(read_pod(pod_body("p", queue=queue, gates=gates)))
    assert newcomers.are_besides(()) == is_newcomer
