"""A simulated node with a simulated CUDA, and what a part works with on it."""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import TypeAlias

import pytest

from gpu_proof import own_cgroups, own_folder
from gpu_proof.bench import Bench, ProofPlace
from gpu_proof.finding import Fact, ProofOutcome, ProofVerdict
from gpu_proof.need import found_gpu
from gpu_proof.part import ProofPart
from simulation.cuda import CudaFault, set_faults
from simulation.nvml import DeviceNodes, SimulatedNode, installed

PartRunner: TypeAlias = Callable[..., Mapping[str, ProofOutcome]]
LIMITING = "615.10.01"


def module(node: SimulatedNode) -> tuple[str, ...]:
    """The command that runs a module on a node."""
    return (sys.executable, "-m", "simulation.cuda", "--node", str(node.directory), "-m")


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder of its own, as the command makes it."""
    path = own_folder.make()
    yield path
    assert own_folder.remove(path) is None


@pytest.fixture
def node(folder: Path) -> SimulatedNode:
    return SimulatedNode.create(
        folder / "node", "dgx-h100", device_nodes=DeviceNodes.REGULAR, driver_version=LIMITING
    )


@pytest.fixture
def run(node: SimulatedNode, folder: Path) -> Iterator[PartRunner]:
    """Runs a part on the node with faults; gives what came of its statements, by name."""
    root = own_cgroups.mount()
    if root is None:
        pytest.skip("no cgroup v2 is mounted writable on this machine")
    with ExitStack() as made:
        cgroup = own_cgroups.make(root)
        made.callback(own_cgroups.remove, cgroup, 30.0)
        place = ProofPlace(
            module=module(node),
            folder=folder,
            driver_name="proof.gpu",
            host_root=node.root,
            driver_root=node.root,
            cgroup_root=root,
            cgroup=cgroup,
            gpu=None,
        )

        def run(part: ProofPart, *faults: CudaFault) -> Mapping[str, ProofOutcome]:
            set_faults(node.directory, *faults)
            made.enter_context(installed(node.directory))  # of the driver that it has by now
            library = place.library
            made.callback(library.close)
            gpu = found_gpu(place.reader(library).read(), None)
            assert not isinstance(gpu, str), gpu
            findings = list(part.run(Bench(place, library, gpu)))
            assert all(isinstance(found, Fact | ProofVerdict) for found in findings)
            return {
                found.statement.name: found.outcome
                for found in findings
                if isinstance(found, ProofVerdict)
            }

        yield run


def results(outcomes: Mapping[str, ProofOutcome], result: str) -> set[str]:
    """The names of the statements with this result."""
    return {name for name, outcome in outcomes.items() if outcome.result == result}
