"""`carina why`: why a group waits, by the engine's decision on a snapshot."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from pathlib import Path
from typing import Any, Final

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.kube.collector_pause import collector_paused
from controller.codec.file import read_snapshot
from controller.codec.value import codec_of
from controller.decide.cycle import plan
from controller.explain import Explanation, explain, lines
from controller.input import print_error, read_input

__all__ = ["COMMAND"]

HAS_ALL: Final = 0
INVALID_INPUT: Final = 2
WAITS: Final = 3

_NAME: Final = "why"
_EXIT_CODES: Final = f"""\
exit codes:
  {HAS_ALL}  the group has, or gets now, all that it asks for
  {INVALID_INPUT}  an argument or the file is not valid, or there is no such group
  {WAITS}  the group waits
"""


def run(arguments: Namespace) -> int:
    """Prints the reasons of one group; errors of the input go to standard error."""
    try:
        with collector_paused(freeze=True):
            source, content = read_input(arguments.file)
            snapshot = read_snapshot(source, content)
        found = explain(snapshot, plan(snapshot), arguments.group)
    except ValueError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    document: dict[str, Any] = codec_of(Explanation).write(found)
    print(render(OutputFormat(arguments.output), document=document, table=lines(found)))
    return WAITS if found.waits else HAS_ALL


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument("group", metavar="GROUP", help="the group, as NAMESPACE/NAME")
    parser.add_argument(
        *("-f", "--file"),
        type=Path,
        required=True,
        metavar="SNAPSHOT",
        help="a Snapshot, as YAML or JSON; - for standard input",
    )
    add_output_argument(parser)


COMMAND: Final = Command(
    summary="says why a group waits, and what would help",
    add_arguments=_add_arguments,
    run=run,
)
