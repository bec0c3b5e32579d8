"""GPUs that get other minor numbers when the driver is loaded anew, on a simulated node."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from simulation.nvml import SimulatedNode, install, uninstall
from tests.fakes.mig_node import MigNode
from tests.integration.mig.test_time_slices import SHORT, share_config, slices

ON_FIRST, ON_SECOND = "gpu-0-mig-1g10gb-19-6", "gpu-1-mig-1g10gb-19-6"
_SWAPPED = {0: 1, 1: 0}


def swap_first_two(node: MigNode) -> MigNode:
    """Loads the driver anew: partitions are gone, and GPUs 0 and 1 have each other's number."""
    uninstall()
    directory = node.simulated.directory
    _change(directory / "hardware.json", _renumber_slots)
    _change(directory / "state.json", _renumber_gpus)
    install(directory)
    simulated = SimulatedNode(directory)
    simulated.driver(available=True)
    return MigNode(simulated, node.folder, node.allocations)


def _change(file: Path, change: Callable[[Any], None]) -> None:
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content))


def _renumber_slots(hardware: Any) -> None:
    for slot in hardware["gpus"]:
        slot["minor"] = _SWAPPED.get(slot["minor"], slot["minor"])


def _renumber_gpus(state: Any) -> None:
    gpus = state["gpus"]
    gpus["0"], gpus["1"] = gpus["1"], gpus["0"]
    for gpu in gpus.values():
        gpu.update(mig_enabled=False, mig_pending=False, instances=[])


def test_a_claim_does_not_remove_the_partition_of_another_on_the_gpu_that_it_had(
    node: MigNode,
) -> None:
    node.prepare("train", ON_FIRST)
    node = swap_first_two(node)
    node.repair()
    node.prepare("infer", ON_SECOND)

    node.unprepare("train")

    assert node.instances(0) == ()
    assert len(node.instances(1)) == 1
    node.unprepare("infer")
    assert node.instances(1) == ()
    assert not any(node.recorded().values())


def test_a_claim_does_not_reset_the_time_slices_of_another_on_the_gpu_that_it_had(
    node: MigNode,
) -> None:
    configs = dict.fromkeys(("train", "infer"), share_config("Short"))
    node.of_class |= configs
    node.prepare("train", "gpu-0-share")
    node = swap_first_two(node)
    node.of_class |= configs
    node.repair()
    node.prepare("infer", "gpu-1-share")
    assert slices(node) == {0: SHORT, 1: SHORT}

    node.unprepare("train")
    assert slices(node) == {1: SHORT}

    node.unprepare("infer")
    assert slices(node) == {}
