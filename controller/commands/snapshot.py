"""`carina snapshot`: the cluster as a file, for `carina simulate` and `carina why`."""

from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from typing import Final

from carina_dra.cli.command import Command
from controller.commands.input import add_snapshot_argument, chosen_cluster, print_error
from controller.engine.files.file import write_snapshot
from controller.engine.files.redaction import redacted

__all__ = ["COMMAND"]

WRITTEN: Final = 0
INVALID_INPUT: Final = 2

_NAME: Final = "snapshot"
_EXIT_CODES: Final = f"""\
exit codes:
  {WRITTEN}  the snapshot was written
  {INVALID_INPUT}  the file is not valid, or the cluster cannot be read
"""


def run(arguments: Namespace) -> int:
    """Writes the snapshot to standard output; errors of the input go to standard error."""
    try:
        snapshot = chosen_cluster(_NAME, arguments).snapshot
    except ValueError as error:
        print_error(_NAME, str(error))
        return INVALID_INPUT
    print(write_snapshot(redacted(snapshot)), end="")
    return WRITTEN


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    add_snapshot_argument(parser)


COMMAND: Final = Command(
    add_arguments=_add_arguments,
    run=run,
)
