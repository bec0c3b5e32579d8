"""Lets several processes do one run: each takes the next test file that no other has taken.

Files are taken when they are reached, so that all processes are busy until the end.
The tests with the real node of the session are taken together, by one process. Those with a node of
their own are taken as files.
"""

import hashlib
from collections.abc import Iterator
from pathlib import Path

import pytest

_NODE = "node"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Adds the folder by which processes know of each other."""
    parser.addoption(
        "--together",
        metavar="DIR",
        type=Path,
        help="run only test files that no other process with this empty folder has taken",
    )


@pytest.hookimpl(trylast=True)  # after -m has chosen, and tests are marked
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Brings the tests of a part together, those with a node first: they take longest."""
    if config.option.together:
        items.sort(key=lambda item: _part(item) != _NODE)  # stable


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> object:
    """Runs what this process takes, as pytest runs all tests."""
    folder: Path | None = session.config.option.together
    if folder is None or session.config.option.collectonly or session.testsfailed:
        return None
    taken = _taken(session.items, folder)
    item = next(taken, None)
    while item is not None:
        next_item = next(taken, None)  # teardown depends on what follows
        item.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        item = next_item
    return True


def _taken(items: list[pytest.Item], folder: Path) -> Iterator[pytest.Item]:
    own: set[str] = set()
    for item in items:  # those of a file may be apart: pytest groups them by parametrized fixtures
        part = _part(item)
        if part in own or _take(folder / hashlib.sha256(part.encode()).hexdigest()):
            own.add(part)
            yield item


def _take(path: Path) -> bool:
    """Whether nobody has taken a part before."""
    try:
        path.touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _part(item: pytest.Item) -> str:
    return _NODE if _shares_the_node(item) else item.nodeid.partition("::")[0]


def _shares_the_node(item: pytest.Item) -> bool:
    if not isinstance(item, pytest.Function) or _NODE not in item.fixturenames:
        return False
    definitions = item._fixtureinfo.name2fixturedefs.get(_NODE, ())
    return bool(definitions) and definitions[-1].scope == "session"
