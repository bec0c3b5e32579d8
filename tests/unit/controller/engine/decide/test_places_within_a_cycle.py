"""Pods that get a place, lose it to others in the same cycle, and get another one."""

from controller.engine.decide.cycle import plan
from tests.unit.controller.engine.decide.small import group, node, places, pod, snapshot


def test_who_moves_before_it_has_started_starts_elsewhere_at_once() -> None:
    older, younger = group("older", age=2), group("younger", age=1)
    decided = plan(
        snapshot(
            node("large", 4),
            node("small", 2),
            older,
            pod(older, 2),
            younger,
            pod(younger, 2, only="small"),
        )
    )
    assert places(decided) == {"team/older-0": "large", "team/younger-0": "small"}
    assert not decided.nominations


def test_who_moves_while_it_runs_waits_until_it_has_left() -> None:
    older, younger = group("older", age=2), group("younger", age=1)
    decided = plan(
        snapshot(
            node("large", 4),
            node("small", 2),
            older,
            pod(older, 2, at="small"),
            younger,
            pod(younger, 2, only="small"),
        )
    )
    assert not decided.starts
    nominated = {one.pod: one.node for one in decided.nominations}
    assert nominated == {"team/older-0": "large", "team/younger-0": "small"}
