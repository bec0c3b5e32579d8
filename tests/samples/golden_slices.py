"""The slices of simulated nodes as files: what a change of the code changes for users.

`python -m tests.samples.golden_slices` writes them anew; review what `git diff` shows.
"""

import json
import sys
import tempfile
from pathlib import Path

from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.resource import encode
from kubelet_plugin.devices.device import GpuDevice, devices
from kubelet_plugin.devices.kind import DeviceKind
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.host import HostPaths
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.publish.pool import PublishedPool, pool
from kubelet_plugin.publish.sync import resource_slices
from simulation.nvml import SimulatedNode, installed

PROFILES = ("dgx-h100", "mixed")
DRIVER, NODE = "gpu.carina.dev", "node-1"
_FOLDER = Path(__file__).parent / "golden"


def golden_file(profile: str) -> Path:
    """Where the slices of a profile are."""
    return _FOLDER / f"{profile}-slices.json"


def simulated_pool(profile: str, directory: Path) -> PublishedPool:
    """The pool of a simulated node, which is made in an empty directory.

    Of the GPUs with MIG, only the first has its partitions in it: those of the others are alike.
    """
    devices = simulated_devices(profile, directory)
    first = next((device.gpu for device in devices if device.kind is DeviceKind.MIG), None)
    shown = [
        device for device in devices if device.kind is not DeviceKind.MIG or device.gpu == first
    ]
    return pool(shown, PublishSettings(DRIVER), node=NODE)


def simulated_devices(profile: str, directory: Path) -> tuple[GpuDevice, ...]:
    """The devices of a simulated node, which is made in an empty directory."""
    node = SimulatedNode.create(directory, profile, name=NODE)
    with installed(directory):
        host = HostPaths(node.root)
        library = NvmlLibrary(host.gpu_addresses)
        inventory = NvmlReader(host, library).read()
        library.close()
    return devices(inventory)


def render(of: PublishedPool) -> str:
    """The slices as they are in the file."""
    return json.dumps([encode(each) for each in resource_slices(of, 1)], indent=1) + "\n"


def _main() -> int:
    for profile in PROFILES:
        with tempfile.TemporaryDirectory() as directory:
            golden_file(profile).write_text(render(simulated_pool(profile, Path(directory))))
    return 0


if __name__ == "__main__":
    sys.exit(_main())
