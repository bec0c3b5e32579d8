"""Nobody who has the role `edit` in a namespace stops, robs or starves anybody else.

It lasts 3 minutes by default, see `tests.length`.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from simulation.kubernetes.cluster import Cluster
from tests.integration.controller.fuzz.run import run
from tests.integration.controller.fuzz.world import World, running_world
from tests.length import scaled, seed

_SECONDS: Final = scaled(720)
_ALLOWED: Final = 4.0
"""Of the hundred units of a short run, one decides: it may wait for a costly attempt."""
_AROUND_S: Final = 900.0
"""Seconds for the start of the world, the quiet time and the end."""


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    with running_world() as running:
        yield running


@pytest.fixture(scope="module")
def cluster(world: World) -> Cluster:
    """Marks the test as one that needs a real Kubernetes."""
    return world.cluster


@pytest.mark.usefixtures("cluster")
@pytest.mark.timeout(2 * _SECONDS + _AROUND_S)
def test_a_hostile_tenant_does_no_harm(world: World, tmp_path: Path) -> None:
    report = run(world, seconds=_SECONDS, seed=seed(), folder=tmp_path, say=print)
    print(*report.summary(), sep="\n")
    found = [*report.findings(), *report.delays(_ALLOWED)]
    lines = "\n".join(found)  # pytest would shorten a list
    assert not lines, f"seed {seed()}; the last steps are in {tmp_path}"
