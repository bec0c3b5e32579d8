"""`carina inventory`: this machine's GPUs, and the ResourceSlices the plugin would publish of them.

It needs no cluster and no configuration, and changes nothing.
"""

import json
import os
import platform
import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final, assert_never

import yaml

from carina_dra.cli.command import Command
from carina_dra.quantity import Quantity
from carina_dra.resource import ResourceSlice, encode
from kubelet_plugin.cdi.driver_root import nvml_libraries
from kubelet_plugin.devices.device import devices
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory import health
from kubelet_plugin.inventory.gpu import Gpu, GpuState, ObservedGpu
from kubelet_plugin.inventory.inventory import (
    DriverMissing,
    DriverReady,
    DriverReplaced,
    DriverUnusable,
    Inventory,
    known_gpus,
)
from kubelet_plugin.inventory.mig import MigSupported, MigUnsupported
from kubelet_plugin.nvml.library import NvmlLibrary
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from kubelet_plugin.report import logs

__all__ = ["COMMAND"]

SHOWN: Final = 0
NO_DRIVER: Final = 3
DRIVER_REFUSES: Final = 4
NO_GPU: Final = 5

_EXIT_CODES: Final = f"""\
exit codes:
  {SHOWN}  there is a GPU
  {NO_DRIVER}  there is no NVIDIA driver
  {DRIVER_REFUSES}  there is an NVIDIA driver, and it does not work
  {NO_GPU}  the driver works and knows no GPU
"""


def run(arguments: Namespace) -> int:
    """Prints what is there, and says on standard error what is wrong with it."""
    logs.configure("text", "warning")  # standard output is for what was asked for
    host = HostPaths(Path(arguments.host_root))
    library = NvmlLibrary(host, nvml_libraries(Path(arguments.driver_root)))
    inventory = NvmlReader(host, library).read()
    library.close()
    published = resource_slices(
        pool(devices(inventory), driver=arguments.driver_name, node=arguments.node_name),
        generation=1,
    )
    print(_FORMATS[arguments.output](inventory, published))
    for complaint in complaints(inventory):
        print(f"carina inventory: {complaint}", file=sys.stderr)
    return exit_code(inventory)


def exit_code(inventory: Inventory) -> int:
    """Gives the exit code that says whether there is a GPU, and if not, why."""
    match inventory:
        case DriverReady():
            return SHOWN if known_gpus(inventory) else NO_GPU
        case DriverMissing():
            return NO_DRIVER
        case DriverUnusable() | DriverReplaced():
            return DRIVER_REFUSES
    assert_never(inventory)


def complaints(inventory: Inventory) -> Iterator[str]:
    """Gives what is wrong, each with what can be done about it."""
    match inventory:
        case DriverReady(unknown=unknown):
            for gpu in unknown:
                yield (
                    f"GPU number {gpu.index} of the driver's list cannot be read: {gpu.failure}; "
                    "see nvidia-smi and the kernel log"
                )
            if exit_code(inventory) == NO_GPU:
                yield "the NVIDIA driver works and knows no GPU of this machine; see lspci"
        case DriverMissing(reason):
            yield f"{reason}; install the NVIDIA driver, if this machine has a GPU"
        case DriverUnusable(failure):
            yield f"the NVIDIA driver does not work: {failure}; see whether nvidia-smi works"
        case DriverReplaced(library):
            yield f"another driver was installed meanwhile, with {library}; look again"


def as_json(inventory: Inventory, published: Sequence[ResourceSlice]) -> str:
    """Gives the inventory for programs."""
    return json.dumps(_document(inventory, published), indent=2)


def as_yaml(inventory: Inventory, published: Sequence[ResourceSlice]) -> str:
    """Gives the same as YAML."""
    return yaml.safe_dump(_document(inventory, published), sort_keys=False).rstrip()


def _document(inventory: Inventory, published: Sequence[ResourceSlice]) -> dict[str, Any]:
    return {
        "gpus": [_gpu_document(observed) for observed in known_gpus(inventory)],
        "resourceSlices": [encode(each) for each in published],
    }


def as_table(inventory: Inventory, published: Sequence[ResourceSlice]) -> str:
    """Gives the inventory for people."""
    return "\n".join((*_gpu_table(inventory), "", *_slice_table(published)))


def _gpu_table(inventory: Inventory) -> Iterator[str]:
    return _columns(
        ("GPU", "PRODUCT", "MEMORY", "PCI ADDRESS", "NUMA", "NVLINK", "MIG", "STATE", "UUID"),
        [
            (
                str(observed.gpu.minor),
                observed.gpu.product_name or "-",
                _memory(observed.gpu),
                observed.gpu.pci_bus_id,
                "-" if observed.gpu.numa_node is None else str(observed.gpu.numa_node),
                _peers(observed.state),
                _mig(observed),
                health.state(observed.state.problems),
                observed.gpu.uuid,
            )
            for observed in known_gpus(inventory)
        ],
    )


def _memory(gpu: Gpu) -> str:
    return "-" if gpu.memory_bytes is None else str(Quantity.of(gpu.memory_bytes))


def _peers(state: GpuState) -> str:
    return ",".join(str(peer) for peer in state.nvlink.peers) if state.nvlink else "-"


def _slice_table(published: Sequence[ResourceSlice]) -> Iterator[str]:
    return _columns(
        ("RESOURCESLICE", "DRIVER", "POOL", "CONTENT"),
        [
            (
                f"{each.metadata.generate_name}*",
                each.spec.driver,
                each.spec.pool.name,
                _content(each),
            )
            for each in published
        ],
    )


def _gpu_document(observed: ObservedGpu) -> dict[str, Any]:
    gpu, nvlink = observed.gpu, observed.state.nvlink
    document = {
        "minor": gpu.minor,
        "uuid": gpu.uuid,
        "pciBusID": gpu.pci_bus_id,
        "productName": gpu.product_name,
        "brand": gpu.brand,
        "architecture": gpu.architecture,
        "cudaComputeCapability": _dotted(gpu.cuda_compute_capability),
        "memoryBytes": gpu.memory_bytes,
        "driverVersion": gpu.driver_version,
        "cudaDriverVersion": _dotted(gpu.cuda_driver_version),
        "addressingMode": gpu.addressing_mode,
        "numaNode": gpu.numa_node,
        "pcieRoot": gpu.pcie_root,
        "nvlink": {"domain": nvlink.domain, "peers": list(nvlink.peers)} if nvlink else None,
        "mig": _mig(observed),
        "state": health.state(observed.state.problems),
    }
    return {name: value for name, value in document.items() if value is not None}


def _mig(observed: ObservedGpu) -> str:
    match observed.gpu.mig:
        case MigUnsupported():
            return "unsupported"
        case MigSupported():
            return observed.state.mig_mode.value
    assert_never(observed.gpu.mig)


def _content(each: ResourceSlice) -> str:
    sets = ", ".join(counters.name for counters in each.spec.shared_counters)
    names = ", ".join(device.name for device in each.spec.devices)
    if sets:
        return f"counter sets {sets}"
    return f"devices {names}" if names else "empty"


def _dotted(version: tuple[int, int] | None) -> str | None:
    return f"{version[0]}.{version[1]}" if version else None


def _columns(heads: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    widths = [max(map(len, column)) for column in zip(heads, *rows, strict=True)]
    for row in (heads, *rows):
        cells = (cell.ljust(width) for cell, width in zip(row, widths, strict=True))
        yield "  ".join(cells).rstrip()


_FORMATS: Final = {"table": as_table, "json": as_json, "yaml": as_yaml}


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        *("-o", "--output"),
        choices=tuple(_FORMATS),
        default="table",
        help="how it is written [%(default)s]",
    )
    for setting, default, description in (
        ("node-name", platform.node().lower(), "the node's name in Kubernetes"),
        ("driver-name", "gpu.carina.dev", "the DRA driver's name"),
        ("driver-root", "/", "root of the installed NVIDIA driver"),
        ("host-root", "/", "where the host's proc and sys are"),
    ):
        name = setting.replace("-", "_")
        parser.add_argument(
            f"--{setting}",
            # In the plugin's pod the plugin's settings hold.
            default=os.environ.get(f"CARINA_{name.upper()}", default),
            metavar=name.rpartition("_")[2].upper(),
            help=f"{description} [%(default)s]",
        )


COMMAND: Final = Command(
    summary="shows this machine's GPUs and the ResourceSlices they make",
    add_arguments=_add_arguments,
    run=run,
)
