"""How long tests of random cases run, and which cases they draw: one factor and one seed for all.

CARINA_TEST_LENGTH multiplies their repetitions. 1 is the full length; by default they do a quarter,
each commit of its own, because the seed follows from the commit's hash. CARINA_TEST_SEED repeats
the cases of another run; the head of each run and each failure show it. Hypothesis' properties
follow both without a line of their own.

Time limits follow from the scaled numbers, so a longer run needs no other limit.
"""

import os
import subprocess
from collections.abc import Generator
from functools import cache
from itertools import pairwise
from pathlib import Path
from types import FunctionType

import pytest
from hypothesis import settings

_LENGTH, _SEED = "CARINA_TEST_LENGTH", "CARINA_TEST_SEED"
_DEFAULT_LENGTH = 0.25
_DIGITS = 8
"""Of the commit's hash: a number that is typed with ease, and no seed of another commit."""
_SETTINGS = "_hypothesis_internal_use_settings"
"""Where a property's function has its settings; Hypothesis' own pytest plugin sets them there."""


def scaled(number: int) -> int:
    """Returns how many repetitions a test does that does `number` at full length; at least one.

    Raises:
        ValueError: the environment's factor is not a positive number.
    """
    return max(1, round(number * _factor()))


def seeds(number: int) -> range:
    """Returns the seeds of a test that tries `number` of them at full length.

    Raises:
        ValueError: the environment's factor or seed is not a number of its kind.
    """
    return range(seed(), seed() + scaled(number))


def parts(whole: range, size: int) -> list[range]:
    """Returns the seeds in parts of about this size, which can be reported on their own."""
    number = max(1, round(len(whole) / size))
    bounds = [len(whole) * index // number for index in range(number + 1)]
    return [whole[begin:end] for begin, end in pairwise(bounds)]


@cache
def seed() -> int:
    """Returns the seed of this run: the environment's, else that of the commit; 0 without Git.

    Raises:
        ValueError: the environment's seed is not a whole number from 0.
    """
    text = os.environ.get(_SEED)
    if text is None:
        return _of_commit()
    if not text.isdecimal():
        raise ValueError(f"{_SEED}={text} is not a whole number from 0")
    return int(text)


def repeated_by() -> str:
    """Returns the environment that repeats the random cases of this run."""
    return f"{_SEED}={seed()} {_LENGTH}={_factor():g}"


def pytest_report_header() -> str:
    """Says which random cases this run has."""
    return f"random cases: {repeated_by()}"


@pytest.hookimpl(tryfirst=True)  # before Hypothesis' plugin reads its option
def pytest_configure(config: pytest.Config) -> None:
    """Gives the seed to Hypothesis, unless its own option does."""
    if config.option.hypothesis_seed is None:
        config.option.hypothesis_seed = str(seed())


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Scales how many examples the properties try."""
    scaled_already: set[object] = set()
    for item in items:
        if not isinstance(item, pytest.Function):
            continue
        of_test = getattr(item.obj, "__func__", item.obj)
        if of_test in scaled_already or not getattr(of_test, "is_hypothesis_test", False):
            continue
        scaled_already.add(of_test)
        _scale_examples(item, of_test)


def _scale_examples(item: pytest.Function, of_test: FunctionType) -> None:
    if hasattr(of_test, "_hypothesis_state_machine_class"):
        case = item.cls
        case.settings = settings(case.settings, max_examples=scaled(case.settings.max_examples))
    else:
        own: settings = getattr(of_test, _SETTINGS)
        setattr(of_test, _SETTINGS, settings(own, max_examples=scaled(own.max_examples)))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Adds to a failure how its random cases are repeated."""
    report = yield
    if report.failed:
        report.sections.append(("random cases", repeated_by()))
    return report


def _factor() -> float:
    text = os.environ.get(_LENGTH, str(_DEFAULT_LENGTH))
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise ValueError(f"{_LENGTH}={text} is not a positive number; 1 is the full length")
    return factor


def _of_commit() -> int:
    git = ("git", "rev-parse", "HEAD")
    try:
        found = subprocess.run(
            git, cwd=Path(__file__).parent, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError):
        return 0
    return int(found.stdout[:_DIGITS], 16)
