"""Says at the end of a run where its time went: the suites, the slowest files and tests.

Wall time, which a busy machine stretches; the processor time of the whole run stands beside it.
`--time-spent FILE` writes the same as JSON, from which `python -m tests` adds up several processes.
"""

import json
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path

import pytest

_SHOWN = 12
_DEPTH = 3
"""Folders of a path that name a suite: tests/unit/controller."""
_SPENT = pytest.StashKey["Spent"]()


@dataclass(slots=True)
class Spent:
    """Seconds of a run."""

    wall: float = 0.0
    processor: float = 0.0
    """Of the process and the children that have ended."""
    tests: dict[str, float] = field(default_factory=dict)
    """By node id: set-up, call and teardown."""

    def lines(self) -> Iterator[str]:
        """The report."""
        yield f"{self.wall:.0f} s, with {self.processor:.0f} s of processor time"
        yield from _table("by suite", _sums(self.tests, _suite))
        yield from _table("by file", _sums(self.tests, _file))
        yield from _table("by test", self.tests)


def added(spent: Iterable[Spent]) -> Spent:
    """What processes beside each other have spent: the longest wall time, all processor time."""
    total = Spent()
    for one in spent:
        total.wall = max(total.wall, one.wall)
        total.processor += one.processor
        total.tests.update(one.tests)
    return total


def read(path: Path) -> Spent:
    """What a process has written."""
    return Spent(**json.loads(path.read_text()))


def pytest_addoption(parser: pytest.Parser) -> None:
    """Lets a file with the times be written."""
    parser.addoption("--time-spent", metavar="FILE", type=Path, help="write the times as JSON")


def pytest_configure(config: pytest.Config) -> None:
    """Starts the clock."""
    config.stash[_SPENT] = Spent()
    config.pluginmanager.register(_Clock(config.stash[_SPENT]))


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    """Writes the report."""
    spent = config.stash[_SPENT]
    if path := config.option.time_spent:
        path.write_text(json.dumps(asdict(spent)))
    elif spent.tests and config.get_verbosity() >= 0:
        terminalreporter.section("where the time went")
        for line in spent.lines():
            terminalreporter.write_line(line)


class _Clock:
    """Adds up what the tests take."""

    def __init__(self, spent: Spent) -> None:
        self._spent = spent
        self._began = time.monotonic()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        tests = self._spent.tests
        tests[report.nodeid] = tests.get(report.nodeid, 0.0) + report.duration

    def pytest_sessionfinish(self) -> None:
        self._spent.wall = time.monotonic() - self._began
        used = os.times()
        self._spent.processor = sum(used[:4])


def _file(test: str) -> str:
    return test.partition("::")[0]


def _suite(test: str) -> str:
    return "/".join(_file(test).split("/")[:-1][:_DEPTH])


def _sums(tests: Mapping[str, float], name: Callable[[str], str]) -> Mapping[str, float]:
    sums: defaultdict[str, float] = defaultdict(float)
    for test, seconds in tests.items():
        sums[name(test)] += seconds
    return sums


def _table(title: str, seconds: Mapping[str, float]) -> Iterator[str]:
    yield f"{title}:"
    for name in sorted(seconds, key=lambda name: -seconds[name])[:_SHOWN]:
        yield f"{seconds[name]:8.1f} s  {name}"
