"""The file that a command of the engine reads, and the errors that it prints."""

import sys
from pathlib import Path


class InputError(ValueError):
    """A file cannot be read."""


def read_input(path: Path) -> tuple[str, bytes]:
    """The name of a file in errors, and its content; `-` is the standard input.

    Raises:
        InputError: the file cannot be read.
    """
    if str(path) == "-":
        if sys.stdin is None:
            raise InputError("standard input: is closed")
        return "standard input", sys.stdin.buffer.read()
    try:
        return str(path), path.read_bytes()
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from None


def print_error(command: str, text: str) -> None:
    """Prints one line to standard error; names in files may have any character."""
    line = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
    print(f"carina {command}: {line}", file=sys.stderr)
