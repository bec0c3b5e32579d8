"""Fixtures that every suite may ask for."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = (
    "tests.length",
    "tests.memory",
    "tests.oracle.fixtures",
    "tests.real_kubernetes",
    "tests.time_spent",
    "tests.together",
)

# How long an example takes says more about the machine, which may be busy, than about the code.
# `tests.length` says which examples there are; in CI, Hypothesis would try the same in every run.
settings.register_profile(
    "carina", deadline=None, derandomize=False, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("carina")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Lets conformance vectors from elsewhere be run."""
    parser.addoption(
        "--vectors",
        default=str(Path(__file__).parents[2] / "shared" / "conformance"),
        metavar="DIR",
        help="folder with conformance vectors: allocator/, cel/ and scheduling/ [%(default)s]",
    )
