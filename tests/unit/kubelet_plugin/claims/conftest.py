"""The fixtures of the tests of claims."""

from pathlib import Path

import pytest

from tests.unit.kubelet_plugin.claims.world import (
    OTHER,
    TRAIN,
    World,
    body,
)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path, {"train": body(TRAIN, "gpu-0"), "other": body(OTHER, "gpu-1")})
