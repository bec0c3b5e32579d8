"""A simulated node with MIG, on which this process has NVML."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeAlias

import pytest

from simulation.nvml import SimulatedNode, install, uninstall
from tests.fakes.mig_node import NODE, MigNode

NodeMaker: TypeAlias = Callable[[str], MigNode]


@pytest.fixture
def make_node(tmp_path: Path) -> Iterator[NodeMaker]:
    def make(profile: str) -> MigNode:
        simulated = SimulatedNode.create(tmp_path / "node", profile, name=NODE)
        install(simulated.directory)
        return MigNode(simulated, tmp_path / "plugin")

    yield make
    uninstall()


@pytest.fixture
def node(make_node: NodeMaker) -> MigNode:
    """Eight H100, whose MIG mode changes without a reset."""
    return make_node("dgx-h100")
