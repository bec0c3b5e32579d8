"""Which minimum of a group is in force while it grows."""

from collections.abc import Mapping
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.engine.model.group import PodSet, SubGroup, SubGroups, is_satisfied, least_pods
from controller.names import MIN_COUNT_ANNOTATION, POD_SET_LABEL, STARTED_WITH_ANNOTATION
from controller.observe.minimum import in_force
from controller.observe.owner import AllMembers, GroupShape, Part, Parts
from controller.observe.pod import ObservedPod, read_pod
from tests.unit.controller.bodies import pod_body
from tests.unit.controller.engine.properties.examples import examples


def _all(*parts: SubGroup, least: int | None = None, name: str = "") -> SubGroups:
    return SubGroups(name, parts, len(parts) if least is None else least)


def _pods(
    counts: Mapping[str, int],
    *,
    started: bool = True,
    bound: bool = True,
    needed: int | None = None,
    deleted: str | None = None,
    phase: str = "Running",
) -> list[ObservedPod]:
    """So many pods of each pod set; `needed` is what their group needed when they started."""
    record = {} if needed is None else {STARTED_WITH_ANNOTATION: str(needed)}
    return [
        read_pod(
            pod_body(
                f"{name}-{number}-{started}-{bound}",
                group="g",
                labels={POD_SET_LABEL: name},
                gates=() if started else ("scheduling.carina.dev/queue",),
                node="n1" if started and bound else None,
                annotations=record,
                deleted=deleted,
                phase=phase,
            )
        )
        for name, count in counts.items()
        for number in range(count)
    ]


THREE, FIVE = PodSet("", 3), PodSet("", 5)
A, B, C = PodSet("a", 1), PodSet("b", 4), PodSet("c", 2)


@pytest.mark.parametrize(
    ("before", "asked", "running", "found"),
    [
        (THREE, FIVE, {"": 3}, THREE),
        (THREE, FIVE, {"": 4}, THREE),
        (THREE, FIVE, {"": 5}, FIVE),
        (THREE, FIVE, {"": 2}, THREE),
        (THREE, FIVE, {}, FIVE),
        (FIVE, THREE, {"": 2}, THREE),
        (THREE, THREE, {"": 2}, THREE),
        (PodSet("", 0), THREE, {"": 1}, PodSet("", 0)),
        (PodSet("", 0), THREE, {}, THREE),
        (PodSet("a", 1), PodSet("b", 2), {"b": 1}, PodSet("b", 1)),
        (_all(A, C), _all(A, B), {"a": 1, "b": 1}, _all(A, B, least=1)),
        (_all(A, C), _all(A, PodSet("c", 6)), {"a": 1, "c": 2}, _all(A, C)),
        (_all(A, C), _all(A, B, C), {"a": 1, "c": 2}, _all(A, B, C, least=2)),
        (_all(A, B, C, least=1), _all(A, B, C, least=3), {"a": 1}, _all(A, B, C, least=1)),
        (A, _all(A, B), {"a": 1}, _all(A, B, least=1)),
        (_all(A, B), _all(A, B), {"a": 1}, _all(A, B)),
        (
            _all(A, _all(B, C, name="x", least=1)),
            _all(A, _all(B, C, name="x")),
            {"a": 1, "c": 2},
            _all(A, _all(B, C, name="x", least=1)),
        ),
    ],
    ids=[
        "scaled up",
        "on its way",
        "reached",
        "scaled up, and a pod is lost",
        "scaled up before it started",
        "scaled down",
        "a pod is lost",
        "all pods were optional",
        "all pods were optional, and none has started",
        "another name of the only pod set",
        "another pod set",
        "a pod set grows",
        "one more pod set",
        "more of the sub-groups",
        "a pod set becomes one of two",
        "a pod set is lost",
        "a sub-group needs more of its parts",
    ],
)
def test_the_minimum_of_a_group_that_has_started_rises_once_it_is_reached(
    before: SubGroup, asked: SubGroup, running: dict[str, int], found: SubGroup
) -> None:
    pods = [*_pods(running), *_pods({"": 5}, started=False)]
    assert in_force(asked, before, pods) == found


@examples(200)
@given(st.randoms(use_true_random=False))
def test_whoever_is_scaled_up_has_what_it_needs(rng: Random) -> None:
    names = rng.sample("abcd", rng.randint(1, 4))
    before, asked = _tree(rng, names[: rng.randint(1, len(names))]), _tree(rng, names)
    counts = {name: rng.randrange(4) for name in names}
    found = in_force(asked, before, _pods(counts))
    assert least_pods(found) <= least_pods(asked)
    assert in_force(asked, found, _pods(counts)) == found
    if is_satisfied(before, counts) and any(counts.values()):
        assert is_satisfied(found, counts)


def _tree(rng: Random, names: list[str]) -> SubGroup:
    parts = [PodSet(name, rng.randrange(5)) for name in names]
    return parts[0] if len(parts) == 1 else _all(*parts, least=rng.randint(0, len(parts)))


def test_a_minimum_is_reached_when_its_pods_are_bound() -> None:
    pods = _pods({"": 3}) + _pods({"": 2}, bound=False)
    assert in_force(FIVE, THREE, pods) == THREE


@pytest.mark.parametrize(
    "gone", [{"phase": "Succeeded"}, {"phase": "Failed"}, {"deleted": "2026-01-01T00:00:00Z"}]
)
def test_pods_that_end_or_have_ended_have_not_started(gone: dict[str, str]) -> None:
    assert in_force(FIVE, THREE, _pods({"": 3}, **gone)) == FIVE  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("needed", "running", "found"),
    [
        (3, 3, THREE),
        (3, 4, PodSet("", 4)),
        (3, 2, FIVE),
        (5, 4, FIVE),
        (5, 5, FIVE),
        (None, 3, FIVE),
    ],
    ids=[
        "scaled up",
        "on its way",
        "scaled up, and a pod is lost",
        "a pod is lost",
        "reached",
        "nobody knows",
    ],
)
def test_pods_say_after_a_restart_whether_their_group_was_scaled_up(
    needed: int | None, running: int, found: SubGroup
) -> None:
    assert in_force(FIVE, None, _pods({"": running}, needed=needed)) == found


def test_after_a_restart_the_pods_that_started_last_say_what_was_needed() -> None:
    pods = _pods({"": 2}, needed=3) + _pods({"other": 1}, needed=5)
    assert in_force(FIVE, None, pods) == FIVE


def test_a_pod_set_that_is_lost_is_missed_after_a_restart() -> None:
    assert in_force(_all(A, B), None, _pods({"b": 6}, needed=5)) == _all(A, B)


def test_a_new_pod_set_is_not_missed_after_a_restart() -> None:
    assert in_force(_all(A, B), None, _pods({"b": 4}, needed=4)) == _all(A, B, least=1)


@pytest.mark.parametrize("text", ["", "x", "-1", "9" * 30])
def test_a_record_that_is_none_says_nothing(text: str) -> None:
    body = pod_body("p", gates=(), annotations={STARTED_WITH_ANNOTATION: text})
    assert in_force(FIVE, None, [read_pod(body)]) == FIVE


def test_the_record_of_a_pod_that_has_not_started_says_nothing() -> None:
    assert read_pod(pod_body("p", annotations={STARTED_WITH_ANNOTATION: "3"})).started_with is None


@pytest.mark.parametrize("late", [Part("b", 4, is_late=True), Part("b", 4, names_queue=False)])
def test_late_parts_are_needed_as_soon_as_they_have_pods(late: Part) -> None:
    shape = Parts((Part("a", 1), late))
    assert in_force(_all(A, B), A, _pods({"a": 1}), shape) == _all(A, B)
    assert in_force(_all(A, B), None, _pods({"a": 1}, needed=1), shape) == _all(A, B)


def test_a_late_part_that_has_started_grows_as_others_do() -> None:
    shape: GroupShape = Parts((Part("a", 1), Part("b", 6, is_late=True)))
    asked, before = _all(A, PodSet("b", 6)), _all(A, B)
    assert in_force(asked, before, _pods({"a": 1, "b": 4}), shape) == before


def test_an_owner_that_needs_all_of_its_pods_needs_further_ones_at_once() -> None:
    assert in_force(FIVE, THREE, _pods({"": 3}), AllMembers(1)) == FIVE


def test_a_minimum_may_be_as_large_as_pods_can_say() -> None:
    body = pod_body("p", annotations={MIN_COUNT_ANNOTATION: "999999999"}, gates=(), node="n1")
    assert in_force(PodSet("", 999_999_999), PodSet("", 1), [read_pod(body)]) == PodSet("", 1)
