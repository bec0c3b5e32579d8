"""What `carina doctor` finds, and how its checks run: each within a time, whatever it waits for."""

import threading
from argparse import Namespace, _ArgumentGroup
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from importlib import import_module
from importlib.metadata import entry_points
from typing import Final, TypeAlias

ArgumentGroup: TypeAlias = _ArgumentGroup
"""A group of the arguments of a command."""

SCOPES: Final = "carina.doctor"
"""The group of entry points in which a package provides the checks of a scope."""


class Grade(StrEnum):
    """How it is."""

    OK = "ok"
    WARN = "warn"
    """It works, and something does not, or may not, or cannot be told."""
    BAD = "bad"
    """GPUs cannot be allocated or prepared."""


@dataclass(frozen=True, slots=True)
class Diagnosis:
    """One line of the doctor."""

    grade: Grade
    text: str
    remedy: str = ""
    """What to do; empty if it is as it has to be."""


def ok(text: str) -> Diagnosis:
    """Returns a finding that asks for nothing."""
    return Diagnosis(Grade.OK, text)


def warn(text: str, remedy: str) -> Diagnosis:
    """Returns a finding about something that works in part, or cannot be told."""
    return Diagnosis(Grade.WARN, text, remedy)


def bad(text: str, remedy: str) -> Diagnosis:
    """Returns a finding that keeps GPUs from being used."""
    return Diagnosis(Grade.BAD, text, remedy)


@dataclass(frozen=True, slots=True)
class Check:
    """Something that is looked at."""

    name: str
    look: Callable[[], Iterable[Diagnosis]]
    """May fail, and may never return."""


@dataclass(frozen=True, slots=True)
class CheckScope:
    """The checks of a node or of a cluster."""

    add_arguments: Callable[[ArgumentGroup], None]
    checks: Callable[[Namespace], Sequence[Check]]


def in_module(name: str) -> Callable[[Namespace], Sequence[Check]]:
    """The checks that a module makes by its function `checks`; it is imported when they are run."""

    def checks(arguments: Namespace) -> Sequence[Check]:
        made: Sequence[Check] = import_module(name).checks(arguments)
        return made

    return checks


def scopes() -> Mapping[str, CheckScope]:
    """Returns the scopes of all installed packages by name.

    Raises:
        TypeError: an entry point is not a `CheckScope`.
    """
    found = {point.name: point.load() for point in entry_points(group=SCOPES)}
    for name, scope in found.items():
        if not isinstance(scope, CheckScope):
            raise TypeError(f"entry point {name} of {SCOPES} is no CheckScope")
    return dict(sorted(found.items()))


def diagnoses(checks: Sequence[Check], seconds: float) -> list[tuple[str, Diagnosis]]:
    """Returns what the checks find, in their order, after `seconds` at the latest.

    They run at the same time. One that has not returned by then, or has failed, is a finding.
    """
    results: list[list[Diagnosis] | None] = [None] * len(checks)

    def run(index: int) -> None:
        try:
            results[index] = list(checks[index].look())
        except Exception as error:  # noqa: BLE001 - the other checks go on, and this one is shown
            text = f"the check failed: {type(error).__name__}: {error}"
            results[index] = [warn(text, "report this with the output of the command")]

    threads = [
        threading.Thread(target=run, args=(index,), name=check.name, daemon=True)
        for index, check in enumerate(checks)
    ]
    for thread in threads:
        thread.start()
    late = threading.Event()
    timer = threading.Timer(seconds, late.set)
    timer.daemon = True
    timer.start()
    for thread in threads:
        while thread.is_alive() and not late.is_set():
            thread.join(0.05)
    timer.cancel()
    return [
        (check.name, finding)
        for check, result in zip(checks, results, strict=True)
        for finding in (_hangs(seconds) if result is None else result)
    ]


def _hangs(seconds: float) -> list[Diagnosis]:
    text = f"no answer after {seconds:g} s"
    return [bad(text, "what is asked hangs: see whether its process and its disk or network do")]
