"""The `carina` command: finds its subcommands and calls the one that was asked for.

A subcommand is a `Command` that a package announces as an entry point of the group
`carina.commands`; the entry point's name is the subcommand's. So this library need not import what
stands on it.
"""

import argparse
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points, version
from typing import Final

ENTRY_POINTS: Final = "carina.commands"


@dataclass(frozen=True, slots=True)
class Command:
    """One subcommand."""

    summary: str
    """What it does, in one line of `carina --help`."""
    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Does it, and gives the exit code of the process: 0 for success; 2 means wrong usage."""


def installed() -> dict[str, Command]:
    """Gives the subcommands of all installed packages, by name.

    Raises:
        TypeError: an entry point is something else than a `Command`.
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
    """Runs the subcommand that `arguments` ask for, and gives the exit code.

    SystemExit, as argparse raises it: after `--help` and `--version`, and with code 2 for
    arguments that are no usage of the command.
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
    """Is the console script."""
    return run(sys.argv[1:], installed())
