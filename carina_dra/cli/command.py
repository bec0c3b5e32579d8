"""The `carina` command: finds the installed subcommands and runs one.

A package provides a subcommand as a `ListedCommand` in an entry point of the group
`carina.commands`; the entry point's name is the subcommand's. So this library does not import the
packages that depend on it. Only the subcommand that is run is loaded with all that it needs,
which takes most of the time of a start.
"""

import argparse
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import entry_points, version
from pathlib import Path
from typing import Final, TypeVar

ENTRY_POINTS: Final = "carina.commands"
KUBECTL_PLUGIN: Final = "kubectl-carina"
_FAILED: Final = 1
_INTERRUPTED: Final = 128 + signal.SIGINT
_READER_GONE: Final = 128 + signal.SIGPIPE
EXIT_CODES: Final[Mapping[int, str]] = {
    _FAILED: "the output cannot be written",
    2: "an argument is not valid",
    _INTERRUPTED: "it was interrupted from the keyboard",
    _READER_GONE: "the reader of the output is gone",
}
"""What the exit codes mean that every command may have."""
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Command:
    """What a subcommand takes and does."""

    add_arguments: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
    """Runs the subcommand and returns the exit code: 0 for success, 2 for wrong usage."""


@dataclass(frozen=True, slots=True)
class ListedCommand:
    """One subcommand, before it is chosen."""

    summary: str
    """One line for `carina --help`."""
    load: Callable[[], Command]


def in_module(name: str, summary: str) -> ListedCommand:
    """The subcommand that a module has as `COMMAND`; the module is imported when it is run."""
    return ListedCommand(summary, lambda: _as(Command, import_module(name).COMMAND, name))


def installed() -> dict[str, ListedCommand]:
    """The subcommands of all installed packages by name.

    Raises:
        TypeError: an entry point is not a `ListedCommand`.
    """
    points = sorted(entry_points(group=ENTRY_POINTS), key=lambda point: point.name)
    return {
        point.name: _as(ListedCommand, point.load(), f"entry point {point.name} of {ENTRY_POINTS}")
        for point in points
    }


def run(arguments: Sequence[str], commands: Mapping[str, ListedCommand]) -> int:
    """Runs the subcommand that `arguments` name, and returns its exit code.

    Raises:
        SystemExit: argparse ends the process, after `--help` and `--version` with code 0, and for
            wrong usage with code 2.
    """
    parsed = _parser(arguments, commands).parse_args(arguments)
    run_chosen: Callable[[argparse.Namespace], int] = parsed.run
    return run_chosen(parsed)


def complete(line: str, commands: Mapping[str, ListedCommand]) -> None:
    """Answers a shell that asks how the command line may go on, by argcomplete's protocol.

    line: what is typed up to the cursor; its first word is the program.

    Raises:
        SystemExit: the answer is given.
    """
    import argcomplete  # noqa: PLC0415 - most starts need no answer

    parser = _parser(line.split()[1:], commands)
    argcomplete.autocomplete(parser, always_complete_options=False, exit_method=sys.exit)


def _parser(
    arguments: Sequence[str], commands: Mapping[str, ListedCommand]
) -> argparse.ArgumentParser:
    """The parser of all commands, with the arguments of the chosen one only."""
    parser = argparse.ArgumentParser(
        prog=_program(), description="GPUs for Kubernetes, by Dynamic Resource Allocation."
    )
    parser.add_argument("--version", action="version", version=f"carina {version('carina-dra')}")
    subparsers = parser.add_subparsers(title="commands", required=True)
    chosen = next((word for word in arguments if not word.startswith("-")), None)
    for name, listed in commands.items():
        subparser = subparsers.add_parser(name, help=listed.summary, description=listed.summary)
        if name == chosen:
            command = listed.load()
            command.add_arguments(subparser)
            subparser.set_defaults(run=command.run)
    return parser


def _program() -> str:
    """How the user calls this program: kubectl runs the plugin `carina` as `kubectl-carina`."""
    return "kubectl carina" if Path(sys.argv[0]).name == KUBECTL_PLUGIN else "carina"


def main() -> int:
    """The entry point of the console script.

    Returns the exit code of the command, or 1 if the output cannot be written. As for other
    programs it is 141 if the reader of the output is gone (128 + SIGPIPE), and 130 after an
    interrupt from the keyboard (128 + SIGINT).
    """
    try:
        try:
            if "_ARGCOMPLETE" in os.environ:
                typed = os.environ["COMP_LINE"].encode()[: int(os.environ["COMP_POINT"])]
                complete(typed.decode(errors="ignore"), installed())
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


def _as(kind: type[T], value: object, where: str) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{where}: a {type(value).__name__}; it must be a {kind.__name__}")
    return value


def _drop_output() -> None:
    """Drops what is left in the buffer; Python would report that it cannot be written."""
    if sys.stdout is not None:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
