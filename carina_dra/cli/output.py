"""What commands print: tables for people, JSON and YAML for programs."""

import json
from argparse import ArgumentParser
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any, Final, assert_never

import yaml

_LIKE_NUMBERS: Final = frozenset("+-.0123456789")


class OutputFormat(StrEnum):
    """The values of `--output`."""

    TABLE = "table"
    JSON = "json"
    YAML = "yaml"


def add_output_argument(parser: ArgumentParser) -> None:
    """Adds `-o` and `--output`; `render` takes the value as `OutputFormat(arguments.output)`."""
    parser.add_argument(
        *("-o", "--output"),
        choices=[output.value for output in OutputFormat],
        default=OutputFormat.TABLE.value,
        help="output format [%(default)s]",
    )


def render(output: OutputFormat, *, document: Mapping[str, Any], table: Iterable[str]) -> str:
    """The text of a result, without a newline at its end.

    `document` is the result for programs, in JSON's types; `table` its lines for people.
    """
    match output:
        case OutputFormat.TABLE:
            return "\n".join(map(_printable, table))
        case OutputFormat.JSON:
            return json.dumps(document, indent=2)
        case OutputFormat.YAML:
            return yaml.dump(document, Dumper=YamlDumper, sort_keys=False).rstrip()
    assert_never(output)


def _printable(line: str) -> str:
    """A line without characters that do something to a terminal: names and texts may have any."""
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in line
    )


class YamlDumper(yaml.SafeDumper):
    """Writes an object that occurs twice in full both times, as JSON does.

    Text that starts like a number is quoted: what reads as a number differs among YAML's readers.
    """

    def ignore_aliases(self, data: object) -> bool:  # noqa: ARG002 - the same for all data
        return True

    def represent_text(self, text: str) -> yaml.Node:
        """A string, quoted where it might be read as a number."""
        style = '"' if text[:1] in _LIKE_NUMBERS else None
        return self.represent_scalar("tag:yaml.org,2002:str", text, style=style)


YamlDumper.add_representer(str, YamlDumper.represent_text)
