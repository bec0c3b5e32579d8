"""`carina inventory`: this machine's GPUs, and the ResourceSlices that the plugin would publish.

It needs no cluster and no configuration, and changes nothing.
"""

import os
import platform
import sys
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections import Counter
from collections.abc import Iterator, Sequence
from fractions import Fraction
from pathlib import Path, PurePosixPath
from typing import Any, Final, assert_never

from pydantic import TypeAdapter, ValidationError

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.least_share import DEFAULT_LEAST_SHARE, parse_least_share
from carina_dra.nvidia.driver_location import DriverLocation, locations
from carina_dra.nvidia.driver_search import DriverSearch
from carina_dra.nvidia.nvml_library import NvmlLibrary
from carina_dra.process import logs
from carina_dra.quantity import Quantity
from carina_dra.resource import ResourceSlice, encode
from carina_dra.text_table import columns
from kubelet_plugin.devices.device import devices
from kubelet_plugin.devices.kind import DeviceKind, default_kinds, parse_kinds
from kubelet_plugin.devices.kind_choice import KindChoice
from kubelet_plugin.devices.name import PartitionName, gpu_name, parse_name
from kubelet_plugin.devices.order import DeviceOrder, free_in_order
from kubelet_plugin.devices.publish_settings import (
    HOST_MEMORY_MIB,
    SHARE_CORES,
    PublishSettings,
)
from kubelet_plugin.host import UNKNOWN_BOOT, HostPaths
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
from kubelet_plugin.inventory.mig import GpuInstance, MigSupported, MigUnsupported
from kubelet_plugin.nvml.reader import NvmlReader
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.publish.arrangement import arranged
from kubelet_plugin.publish.offer import offered
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from kubelet_plugin.settings import mig_intents

GPUS_FOUND: Final = 0
NO_DRIVER: Final = 3
DRIVER_UNUSABLE: Final = 4
NO_GPU: Final = 5

_EXIT_CODES: Final = f"""\
exit codes:
  {GPUS_FOUND}  at least one GPU was found
  {NO_DRIVER}  no NVIDIA driver is installed or loaded
  {DRIVER_UNUSABLE}  an NVIDIA driver is installed, but does not work
  {NO_GPU}  the NVIDIA driver works, but finds no GPU
"""


def run(arguments: Namespace) -> int:
    """Prints the inventory; problems go to standard error."""
    logs.configure("text", "warning")  # standard output is for the inventory
    host = HostPaths(Path(arguments.host_root))
    search = DriverSearch(_driver_locations(arguments.driver_root, arguments.host_filesystem))
    library = NvmlLibrary(host.gpu_addresses, search.nvml_libraries, below=search.roots)
    driver = arguments.driver_name
    intents = MigIntentFiles(
        mig_intents(Path(arguments.kubelet_root), driver), host.boot_id() or UNKNOWN_BOOT
    )
    inventory = NvmlReader(
        host, library, intents=intents.last_read, cgroup_root=Path(arguments.cgroup_root)
    ).read()
    library.close()
    kinds = arguments.device_kinds or default_kinds(driver)
    settings = PublishSettings(
        driver,
        arguments.share_cores,
        arguments.host_memory_mib,
        arguments.partition_types,
        arguments.least_share,
    )
    shown, order = offered(devices(inventory), KindChoice(kinds), ()), arguments.device_order
    by_group = pool(shown, settings, node=arguments.node_name, order=order)
    unused = free_in_order(shown, (), order)
    published = resource_slices(arranged(by_group, unused, (), keep=False), generation=1)
    output = OutputFormat(arguments.output)
    print(
        render(
            output, document=_document(inventory, published), table=_tables(inventory, published)
        )
    )
    for problem in problems(inventory):
        print(f"carina inventory: {problem}", file=sys.stderr)
    return exit_code(inventory)


def _driver_locations(driver_root: str, host_filesystem: str) -> tuple[DriverLocation, ...]:
    if not driver_root:
        return locations(Path(host_filesystem))
    return (DriverLocation(Path(driver_root), PurePosixPath(driver_root)),)


def exit_code(inventory: Inventory) -> int:
    """Returns the exit code: whether a GPU was found, and if not, why."""
    match inventory:
        case DriverReady():
            return GPUS_FOUND if known_gpus(inventory) else NO_GPU
        case DriverMissing():
            return NO_DRIVER
        case DriverUnusable() | DriverReplaced():
            return DRIVER_UNUSABLE
    assert_never(inventory)


def problems(inventory: Inventory) -> Iterator[str]:
    """Yields the problems of the inventory, each with its remedy."""
    match inventory:
        case DriverReady(unknown=unknown):
            for gpu in unknown:
                yield (
                    f"GPU {gpu.index} in the driver's list cannot be read: {gpu.failure}; check "
                    "nvidia-smi and the kernel log"
                )
            if exit_code(inventory) == NO_GPU:
                yield "the NVIDIA driver works, but finds no GPU on this machine; check lspci"
        case DriverMissing(reason):
            yield f"{reason}; if this machine has a GPU, install the NVIDIA driver"
        case DriverUnusable(failure):
            yield f"the NVIDIA driver does not work: {failure}; check that nvidia-smi works"
        case DriverReplaced(library):
            yield (
                f"another NVIDIA driver was installed during this command ({library}); run it again"
            )


def _document(inventory: Inventory, published: Sequence[ResourceSlice]) -> dict[str, Any]:
    return {
        "gpus": [_gpu_document(observed) for observed in known_gpus(inventory)],
        "resourceSlices": [encode(resource_slice) for resource_slice in published],
    }


def _tables(inventory: Inventory, published: Sequence[ResourceSlice]) -> Iterator[str]:
    yield from _gpu_table(inventory)
    yield ""
    yield from _slice_table(published)


def _gpu_table(inventory: Inventory) -> Iterator[str]:
    return columns(
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
    return columns(
        ("RESOURCESLICE", "DRIVER", "POOL", "CONTENT"),
        [
            (
                f"{resource_slice.metadata.generate_name}*",
                resource_slice.spec.driver,
                resource_slice.spec.pool.name,
                _content(resource_slice),
            )
            for resource_slice in published
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
        "foundMIGInstances": [_instance_document(found) for found in observed.state.instances],
        "state": health.state(observed.state.problems),
    }
    return {name: value for name, value in document.items() if value is not None}


def _instance_document(instance: GpuInstance) -> dict[str, Any]:
    return {
        "id": instance.id,
        "profileID": instance.site.profile_id,
        "start": instance.site.placement.start,
        "size": instance.site.placement.size,
        "uuids": [compute.uuid for compute in instance.compute_instances],
    }


def _mig(observed: ObservedGpu) -> str:
    match observed.gpu.mig:
        case MigUnsupported():
            return "unsupported"
        case MigSupported():
            return observed.state.mig_mode.value
    assert_never(observed.gpu.mig)


def _content(resource_slice: ResourceSlice) -> str:
    sets = ", ".join(counters.name for counters in resource_slice.spec.shared_counters)
    if sets:
        return f"counter sets {sets}"
    names = [parse_name(device.name) for device in resource_slice.spec.devices]
    partitions = Counter(gpu_name(name) for name in names if isinstance(name, PartitionName))
    others = ", ".join(str(name) for name in names if not isinstance(name, PartitionName))
    parts = [f"devices {others}"] if others else []
    parts += [f"{number} partitions of {gpu}" for gpu, number in partitions.items()]
    return ", ".join(parts) or "empty"


def _dotted(version: tuple[int, int] | None) -> str | None:
    return f"{version[0]}.{version[1]}" if version else None


def _kinds(text: str) -> frozenset[DeviceKind]:
    try:
        return parse_kinds(text)
    except ValueError as error:
        raise ArgumentTypeError(str(error)) from error


def _order(text: str) -> DeviceOrder:
    if text in list(DeviceOrder):
        return DeviceOrder(text)
    raise ArgumentTypeError(f"{text!r} is not an order; write one of {', '.join(DeviceOrder)}")


def _percent(text: str) -> int:
    return _number(text, 1, 100)


def _least_share(text: str) -> Fraction:
    try:
        return parse_least_share(text)
    except ValueError as error:
        raise ArgumentTypeError(f"{text!r} {error}") from error


def _host_memory(text: str) -> int:
    return _number(text, 0, HOST_MEMORY_MIB)


def _number(text: str, least: int, most: int) -> int:
    if text.isdecimal() and least <= int(text) <= most:
        return int(text)
    raise ArgumentTypeError(f"{text!r} must be a number from {least} to {most}")


def _switch(text: str) -> bool:
    try:
        return TypeAdapter(bool).validate_python(text)  # accepts what the plugin's settings accept
    except ValidationError as error:
        raise ArgumentTypeError(f"{text!r} must be true or false") from error


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    add_output_argument(parser)
    parser.add_argument(
        "--device-kinds",
        type=_kinds,
        default=os.environ.get("CARINA_DEVICE_KINDS"),
        metavar="KINDS",
        help="kinds of devices, separated by commas [those that the plugin publishes by default]",
    )
    parser.add_argument(
        "--device-order",
        type=_order,
        default=os.environ.get("CARINA_DEVICE_ORDER", DeviceOrder.NONE),
        metavar="ORDER",
        help="order of the devices, which no claim uses [%(default)s]",
    )
    parser.add_argument(
        "--share-cores",
        type=_percent,
        default=os.environ.get("CARINA_SHARE_CORES", SHARE_CORES),
        metavar="CORES",
        help="percent of a GPU that a share gets by default [%(default)s]",
    )
    parser.add_argument(
        "--least-share",
        type=_least_share,
        default=os.environ.get("CARINA_LEAST_SHARE", DEFAULT_LEAST_SHARE),
        metavar="SHARE",
        help="least part of a GPU that a share has, and that a part counts in queues [%(default)s]",
    )
    parser.add_argument(
        "--host-memory-mib",
        type=_host_memory,
        default=os.environ.get("CARINA_HOST_MEMORY_MIB", "0"),
        metavar="MIB",
        help="memory of the node that a pod needs for each device, in MiB [%(default)s]",
    )
    parser.add_argument(
        "--partition-types",
        type=_switch,
        default=os.environ.get("CARINA_PARTITION_TYPES", "false"),
        metavar="TYPES",
        help="true or false: whether slices declare partition types [%(default)s]",
    )
    for setting, default, description in (
        ("node-name", platform.node().lower(), "name of the node; default: this machine's"),
        ("driver-name", "gpu.carina.dev", "name of the DRA driver [%(default)s]"),
        ("driver-root", "", "root folder of the installed NVIDIA driver; default: searched"),
        (
            "host-filesystem",
            "/",
            "the host's root folder, below which the driver is searched [%(default)s]",
        ),
        ("host-root", "/", "folder with the host's proc and sys [%(default)s]"),
        (
            "cgroup-root",
            "/sys/fs/cgroup",
            "the host's cgroups, where it is tried whether the driver limits memory [%(default)s]",
        ),
        (
            "kubelet-root",
            "/var/lib/kubelet",
            "where the plugin records its MIG instances [%(default)s]",
        ),
    ):
        name = setting.replace("-", "_")
        parser.add_argument(
            f"--{setting}",
            # In the plugin's pod, the settings of the plugin are the defaults.
            default=os.environ.get(f"CARINA_{name.upper()}", default),
            metavar=name.rpartition("_")[2].upper(),
            help=description,
        )


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
