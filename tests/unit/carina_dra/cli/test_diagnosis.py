"""The checks of `carina doctor`: each is told, whatever it does."""

import threading
from collections.abc import Iterable

from carina_dra.cli.diagnosis import Check, Diagnosis, Grade, bad, diagnoses, ok, scopes, warn
from carina_dra.cli.doctor import ALL_WELL, SOMETHING_BAD, SOMETHING_TO_SEE, exit_code

PATIENCE = 30.0


def test_findings_are_in_the_order_of_the_checks() -> None:
    later = threading.Event()

    def first() -> Iterable[Diagnosis]:
        later.wait()
        yield ok("one")

    def second() -> Iterable[Diagnosis]:
        later.set()
        yield ok("two")
        yield warn("three", "look")

    found = diagnoses([Check("a", first), Check("b", second)], PATIENCE)

    assert [(name, finding.text) for name, finding in found] == [
        ("a", "one"),
        ("b", "two"),
        ("b", "three"),
    ]


def test_a_check_that_hangs_is_told_and_the_others_are_shown() -> None:
    never = threading.Event()

    def hang() -> Iterable[Diagnosis]:
        never.wait()
        yield ok("never")

    (_, hanging), (_, other) = diagnoses([Check("a", hang), Check("b", lambda: [ok("b")])], 0.1)

    assert (hanging.grade, hanging.text) == (Grade.BAD, "no answer after 0.1 s")
    assert other == ok("b")
    never.set()


def test_a_check_that_fails_is_told() -> None:
    def fail() -> Iterable[Diagnosis]:
        raise LookupError("what is wrong")

    ((_, failed),) = diagnoses([Check("a", fail)], PATIENCE)

    assert failed.grade is Grade.WARN
    assert "LookupError: what is wrong" in failed.text


def test_the_exit_code_is_that_of_the_worst_finding() -> None:
    assert exit_code([ok("a"), ok("b")]) == ALL_WELL
    assert exit_code([ok("a"), warn("b", "c")]) == SOMETHING_TO_SEE
    assert exit_code([warn("b", "c"), bad("a", "c"), ok("d")]) == SOMETHING_BAD


def test_a_cluster_and_a_node_can_be_checked() -> None:
    assert list(scopes()) == ["cluster", "node"]
