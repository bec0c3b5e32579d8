"""Runs a program on a simulated node, and creates and changes simulated nodes.

    python -m simulation.nvml create --profile dgx-h100 --name node-1 DIR
    python -m simulation.nvml --node DIR -m kubelet_plugin.main ARGUMENTS...
    python -m simulation.nvml lose-gpu DIR 3

The program runs as with `python -m`, without knowledge of the simulation.
"""

import argparse
import runpy
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import pynvml

from simulation.nvml.device_files import links_seen_as_nodes
from simulation.nvml.hardware import profile_names
from simulation.nvml.installation import installed
from simulation.nvml.node import DeviceNodes, SimulatedNode


def main(arguments: Sequence[str]) -> int:
    """Runs a program or a command; gives the exit status."""
    if arguments[:1] == ["--node"]:
        return _run(arguments[1:])
    options = _parser().parse_args(arguments)
    try:
        act: Callable[[argparse.Namespace], None] = options.act
        act(options)
    except (KeyError, OSError, AttributeError) as error:
        print(f"simulation.nvml: {error}", file=sys.stderr)
        return 1
    return 0


def _run(arguments: Sequence[str]) -> int:
    match arguments:
        case [directory, "-m", module, *rest]:
            with installed(Path(directory)), links_seen_as_nodes():
                sys.argv = [module, *rest]
                runpy.run_module(module, run_name="__main__", alter_sys=True)
            return 0
        case _:
            print("usage: python -m simulation.nvml --node DIR -m MODULE ...", file=sys.stderr)
            return 2


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m simulation.nvml",
        description="Simulated GPU nodes. With --node DIR -m MODULE, runs a program on one.",
    )
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    def command(
        name: str, summary: str, act: Callable[[argparse.Namespace], None]
    ) -> argparse.ArgumentParser:
        added = commands.add_parser(name, help=summary, description=summary)
        added.set_defaults(act=act)
        added.add_argument("directory", type=Path, metavar="DIR", help="the node's directory")
        return added

    def on_gpu(
        name: str, summary: str, act: Callable[[SimulatedNode, int], None]
    ) -> argparse.ArgumentParser:
        added = command(
            name, summary, lambda given: act(SimulatedNode(given.directory), given.minor)
        )
        added.add_argument("minor", type=int, help="minor number: the N of /dev/nvidiaN")
        return added

    def on_symbol(
        name: str, summary: str, act: Callable[[SimulatedNode, str], None]
    ) -> argparse.ArgumentParser:
        added = command(
            name, summary, lambda given: act(SimulatedNode(given.directory), given.symbol)
        )
        added.add_argument("symbol", help="an NVML function, such as nvmlDeviceGetMemoryInfo")
        return added

    create = command("create", "creates a node", _create)
    create.add_argument("--profile", choices=profile_names(), default="dgx-h100")
    create.add_argument("--name", default="node-1", help="name of the node; gives the GPUs' UUIDs")
    create.add_argument(
        "--device-nodes",
        type=DeviceNodes,
        choices=list(DeviceNodes),
        default=DeviceNodes.NVIDIA,
        help="what the files in /dev are",
    )
    command("show", "lists the node's GPUs", _show)
    on_gpu("lose-gpu", "makes a GPU fall off the bus", SimulatedNode.lose_gpu)
    on_gpu("reset-gpu", "resets a GPU", SimulatedNode.reset_gpu)
    on_gpu("unplug", "removes a GPU", SimulatedNode.unplug)
    on_gpu("plug", "inserts a removed GPU", SimulatedNode.plug)
    xid = command(
        "xid",
        "reports an XID error",
        lambda given: SimulatedNode(given.directory).xid(given.minor, given.number),
    )
    xid.add_argument("minor", type=int)
    xid.add_argument("number", type=int)
    driver = command("driver", "loads or unloads the kernel module", _driver)
    driver.add_argument("state", choices=("load", "unload", "uninstall"))
    replaced = command(
        "replace-driver",
        "installs and loads another driver",
        lambda given: SimulatedNode(given.directory).replace_driver(given.version),
    )
    replaced.add_argument("version", help="such as 570.86.15")
    command("reboot", "boots the node", lambda given: SimulatedNode(given.directory).reboot())
    fail = command("fail", "makes a function return an error", _fail)
    fail.add_argument("symbol")
    fail.add_argument("code", help="such as NVML_ERROR_UNKNOWN")
    fail.add_argument("--times", type=int, help="only this many times")
    fail.add_argument("--minor", type=int, help="only on this GPU")
    on_symbol("hang", "makes a function hang", SimulatedNode.hang)
    on_symbol("release", "lets hanging calls return", SimulatedNode.release)
    on_symbol("remove-symbol", "removes a function from the library", SimulatedNode.remove_symbol)
    command("heal", "ends all faults", lambda given: SimulatedNode(given.directory).heal())
    return parser


def _create(options: argparse.Namespace) -> None:
    node = SimulatedNode.create(
        options.directory,
        options.profile,
        name=options.name,
        device_nodes=options.device_nodes,
    )
    print(f"{node.hardware.product} in {node.directory}")


def _show(options: argparse.Namespace) -> None:
    node = SimulatedNode(options.directory)
    print(f"{node.hardware.product}, driver {node.state.driver_version}: {node.state.driver}")
    for slot in node.hardware.gpus:
        gpu = node.state.gpus[slot.minor]
        model = node.hardware.models[slot.model].name
        print(f"{slot.minor}: {model} {slot.pci} {gpu.uuid} {gpu.presence}")


def _driver(options: argparse.Namespace) -> None:
    node = SimulatedNode(options.directory)
    if options.state == "uninstall":
        node.uninstall_driver()
    else:
        node.driver(available=options.state == "load")


def _fail(options: argparse.Namespace) -> None:
    code = int(getattr(pynvml, options.code))
    SimulatedNode(options.directory).fail(
        options.symbol, code, times=options.times, minor=options.minor
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
