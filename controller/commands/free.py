"""`carina free`: which devices are free, and how many pods of a gang they would take now."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterable, Iterator, Mapping
from itertools import chain
from typing import Any, Final

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.text_table import columns
from controller.commands.input import add_snapshot_argument, chosen_cluster, print_error
from controller.engine.decide.nodes.stranded import Lack, StrandedGpus, in_words
from controller.engine.files.value import codec_of
from controller.engine.free import FreeDevices, free_devices
from controller.engine.state.state import State

__all__ = ["COMMAND"]

PRINTED: Final = 0
INVALID_INPUT: Final = 2

_NAME: Final = "free"
_EXIT_CODES: Final = f"""\
exit codes:
  {PRINTED}  what is free was printed
  {INVALID_INPUT}  an argument or the file is not valid, or the cluster cannot be read
"""


def run(arguments: Namespace) -> int:
    """Prints what is free; errors of the input go to standard error."""
    try:
        snapshot = chosen_cluster(_NAME, arguments).snapshot
        found = free_devices(snapshot, arguments.device_class)
    except ValueError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    lost = StrandedGpus(State(snapshot)).by_node()
    document: dict[str, Any] = {
        "classes": [_document(devices) for devices in found],
        "stranded": {
            node: {str(lack): amount for lack, amount in of_node.items()}
            for node, of_node in lost.items()
        },
    }
    table = chain(lines(found), stranded_lines(lost))
    print(render(OutputFormat(arguments.output), document=document, table=table))
    return PRINTED


def lines(found: Iterable[FreeDevices]) -> Iterator[str]:
    """What is free, for people: by model, by node, and the largest gangs."""
    classes = list(found)
    if not classes:
        yield "there are no devices"
        return
    yield from columns(
        ("CLASS", "MODEL", "FREE", "TOTAL"),
        (
            (free.device_class, model or "-", str(amount.free), str(amount.total))
            for free in classes
            for model, amount in free.by_model.items()
        ),
    )
    yield ""
    yield from columns(
        ("NODE", "CLASS", "FREE", "TOTAL"),
        sorted(
            (node, free.device_class, str(amount.free), str(amount.total))
            for free in classes
            for node, amount in free.by_node.items()
        ),
    )
    yield ""
    yield "the largest gang that fits now, of pods with one device each:"
    for free in classes:
        yield f"  {free.device_class}: {', '.join(_gangs(free))}"


def stranded_lines(lost: Mapping[str, Mapping[Lack, float]]) -> Iterator[str]:
    """How many free GPUs nobody can use, and for lack of what."""
    total = {lack: sum(of_node.get(lack, 0) for of_node in lost.values()) for lack in Lack}
    if any(total.values()):
        yield ""
        yield f"stranded, of use for nothing that is typically asked for: {in_words(total)}"


def _gangs(found: FreeDevices) -> Iterator[str]:
    yield f"{found.amount.free} in the cluster"
    for domain in found.best_domains:
        yield f"{domain.free} in {domain.level}={domain.name}"
    yield f"{found.best_node} on one node"


def _document(found: FreeDevices) -> dict[str, Any]:
    written: dict[str, Any] = codec_of(FreeDevices).write(found)
    return {**written, "bestNode": found.best_node}


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "--class",
        dest="device_class",
        action="append",
        default=[],
        metavar="CLASS",
        help="of this DeviceClass instead of all; may be repeated",
    )
    add_snapshot_argument(parser)
    add_output_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
