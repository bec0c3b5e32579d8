"""Fixtures that every suite may ask for."""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ("tests.real_kubernetes", "tests.oracle.fixtures")

# How long an example takes says more about the machine, which may be busy, than about the code.
settings.register_profile("carina", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("carina")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Lets conformance vectors from elsewhere be run."""
    parser.addoption(
        "--vectors",
        default=str(Path(__file__).parents[2] / "shared" / "conformance"),
        metavar="DIR",
        help="folder with conformance vectors: allocator/, cel/ and scheduling/ [%(default)s]",
    )
