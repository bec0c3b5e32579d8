"""Objects of one resource are read and applied one by one: none keeps others from being so."""

from collections.abc import Callable
from typing import Any

import pytest

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.kube.store import Created, Removed, Updated
from controller.observe.set_aside import SetAsideObjects
from controller.run.follower import Follower
from controller.run.subjects import Subject

KEY = ObjectKey("t", "p")


class Known:
    """What was put and not removed."""

    def __init__(self) -> None:
        self.values: dict[ObjectKey, str] = {}

    def put(self, key: ObjectKey, value: str) -> None:
        if value == "fails":
            raise RuntimeError("a defect")
        self.values[key] = value

    def remove(self, key: ObjectKey) -> None:
        self.values.pop(key, None)


@pytest.fixture
def known() -> Known:
    return Known()


@pytest.fixture
def set_aside() -> SetAsideObjects:
    return SetAsideObjects()


@pytest.fixture
def follower(known: Known, set_aside: SetAsideObjects) -> Follower[str]:
    def parse(body: Body) -> str:
        value: str = body["value"]
        return value

    subject: Subject[str] = Subject(PODS, parse, known.put, known.remove)
    return Follower(subject, lambda work: work(), set_aside)


def body(**members: Any) -> Body:
    return {"metadata": {"namespace": "t", "name": "p"}, **members}


def test_an_object_that_cannot_be_read_is_named_and_counted(
    follower: Follower[str],
    known: Known,
    set_aside: SetAsideObjects,
) -> None:
    reported: list[tuple[str, str, str, str]] = []

    def report(resource: str, key: str, doing: str, error: Exception) -> None:
        reported.append((resource, key, doing, repr(error)))

    set_aside.report = report
    follower.changed(Created(KEY, follower.parse(body())))
    assert known.values == {}
    assert set_aside.counts() == {"pods": 1}
    assert reported == [("pods", "t/p", "read", "KeyError('value')")]


def test_the_last_state_of_an_object_stays_until_it_can_be_read_again(
    follower: Follower[str], known: Known, set_aside: SetAsideObjects
) -> None:
    one, two, none = (follower.parse(body(value=of)) for of in ("1", "2", "3"))
    none = follower.parse(body())
    follower.changed(Created(KEY, one))
    follower.changed(Updated(KEY, one, none))
    assert known.values == {KEY: "1"}
    follower.changed(Updated(KEY, none, follower.parse(body(value="2"))))
    assert known.values == {KEY: "2"}
    assert set_aside.counts() == {}
    assert two == "2"


def test_an_object_that_could_once_be_read_goes_with_its_last_state(
    follower: Follower[str], known: Known, set_aside: SetAsideObjects
) -> None:
    one = follower.parse(body(value="1"))
    none = follower.parse(body())
    follower.changed(Created(KEY, one))
    follower.changed(Updated(KEY, one, none))
    follower.changed(Updated(KEY, none, follower.parse(body())))
    follower.changed(Removed(KEY, none))
    assert known.values == {}
    assert set_aside.counts() == {}


def test_an_object_that_was_never_read_goes_without_a_trace(
    follower: Follower[str], known: Known, set_aside: SetAsideObjects
) -> None:
    none = follower.parse(body())
    assert none is None
    follower.changed(Created(KEY, none))
    follower.changed(Removed(KEY, none))
    assert (known.values, set_aside.counts()) == ({}, {})


def test_a_change_that_cannot_be_applied_is_set_aside_until_the_next(
    known: Known, set_aside: SetAsideObjects, follower: Follower[str]
) -> None:
    fails = follower.parse(body(value="fails"))
    follower.changed(Created(KEY, fails))
    assert set_aside.counts() == {"pods": 1}
    follower.changed(Updated(KEY, fails, follower.parse(body(value="1"))))
    assert known.values == {KEY: "1"}
    assert set_aside.counts() == {}


def test_what_one_step_did_not_fail_at_does_not_end_what_another_did(
    set_aside: SetAsideObjects,
) -> None:
    def fail() -> None:
        raise RuntimeError("a defect")

    nothing: Callable[[], None] = lambda: None  # noqa: E731 - the shortest form of it
    assert not set_aside.attempt("pods", "t/p", "read", fail)
    assert set_aside.attempt("pods", "t/p", "applied", nothing)
    assert set_aside.counts() == {"pods": 1}
    set_aside.forget("pods", "t/p")
    assert set_aside.counts() == {}


def test_an_object_is_told_of_once_its_change_is_delivered() -> None:
    told: list[str] = []
    subject: Subject[str] = Subject(
        PODS,
        lambda body: str(body["value"]),
        lambda _, value: told.append(f"put {value}"),
        lambda _: None,
        lambda value: told.append(f"delivered {value}"),
    )
    follower = Follower(subject, lambda work: work(), SetAsideObjects())
    follower.changed(Created(KEY, "a"))
    follower.changed(Updated(KEY, "a", "b"))
    follower.changed(Removed(KEY, "b"))
    assert told == ["put a", "delivered a", "put b", "delivered b"]
