"""Running oracles as fixtures: skipped with the reason where there can be none, failed so in CI."""

import os
from collections.abc import Iterator

import pytest

from tests.oracle import upstream
from tests.oracle.upstream import Upstream


@pytest.fixture(scope="session")
def upstream_allocator() -> Iterator[Upstream]:
    """Upstream's structured allocator."""
    _require_go()
    with upstream.running("allocate") as running:
        yield running


@pytest.fixture(scope="session")
def upstream_cel() -> Iterator[Upstream]:
    """Upstream's CEL for device selectors."""
    _require_go()
    with upstream.running("cel") as running:
        yield running


@pytest.fixture(scope="session")
def upstream_requests() -> Iterator[Upstream]:
    """Upstream's requests of pods."""
    _require_go()
    with upstream.running("requests") as running:
        yield running


@pytest.fixture
def upstream_bench() -> Iterator[Upstream]:
    """Upstream's structured allocator with a cluster of the test's own."""
    _require_go()
    with upstream.running("bench") as running:
        yield running


def _require_go() -> None:
    why_not = upstream.why_not()
    if why_not is None:
        return
    if os.environ.get("CI") == "true":
        pytest.fail(f"CI runs every test, but: {why_not}", pytrace=False)
    pytest.skip(why_not)
