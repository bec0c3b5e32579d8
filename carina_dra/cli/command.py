"""The `carina` command: finds the installed subcommands and runs one.

A package provides a subcommand as a `Command` in an entry point of the group `carina.commands`; the
entry point's name is the subcommand's. This library therefore does not import the packages that
depend on it.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from typing import Final

ENTRY_POINTS: Final = "carina.commands"
_FAILED: Final = 1
_INTERRUPTED: Final = 128 + signal.SIGINT
_READER_GONE: Final = 128 + signal.SIGPIPE


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand."""

    summary: str
    """One line for `carina --help`."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Runs the subcommand and returns the exit code: 0 for success, 2 for wrong usage."""


def installed() -> dict[str, Command]:
    """The subcommands of all installed packages by name.

    Raises:
        TypeError: an entry point is not a `Command`.
    """
    found: dict[str, Command] = {}
    for point in sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name):
        command = point.load()
        if not isinstance(command, Command):
            raise TypeError(
                f"entry point {point.name} of {ENTRY_POINTS}: {point.value} is a "
                f"{type(command).__name__}; it must be a carina_dra.cli.command.Command"
            )
        found[point.name] = command
    return found


def run(arguments: Sequence[str], commands: Mapping[str, Command]) -> int:
    """Runs the subcommand that `arguments` name, and returns its exit code.

    Raises:
        SystemExit: argparse ends the process, after `--help` and `--version` with code 0, and for
            wrong usage with code 2.
    """
    parser = argparse.ArgumentParser(
        prog="carina", description="GPUs for Kubernetes, by Dynamic Resource Allocation."
    )
    parser.add_argument("--version", action="version", version=f"carina {version('carina-dra')}")
    subparsers = parser.add_subparsers(title="commands", required=True)
    for name, command in commands.items():
        subparser = subparsers.add_parser(name, help=command.summary, description=command.summary)
        command.add_arguments(subparser)
        subparser.set_defaults(command=command)
    parsed = parser.parse_args(arguments)
    chosen: Command = parsed.command
    return chosen.run(parsed)


def main() -> int:
    """The entry point of the console script.

    Returns the exit code of the command, or 1 if the output cannot be written. As for other
    programs it is 141 if the reader of the output is gone (128 + SIGPIPE), and 130 after an
    interrupt from the keyboard (128 + SIGINT).
    """
    try:
        try:
            return run(sys.argv[1:], installed())
        finally:
            if sys.stdout is not None:  # it is closed
                sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()
        return _READER_GONE
    except KeyboardInterrupt:
        return _INTERRUPTED
    except OSError as error:
        _drop_output()
        print(f"carina: {error}", file=sys.stderr)
        return _FAILED


def _drop_output() -> None:
    """Drops what is left in the buffer; Python would report that it cannot be written."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
