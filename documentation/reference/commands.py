"""docs/reference/commands.md: the commands, from their parsers."""

import re
from argparse import SUPPRESS, Action, ArgumentParser, _HelpAction
from collections.abc import Iterator, Mapping
from typing import Final

from carina_dra.cli import command
from carina_dra.cli.command import installed
from carina_dra.process import program
from documentation import markdown
from documentation.markdown import code, paragraph, sentence, table

_CODE: Final = re.compile(r"^  (?P<code>\d+)  (?P<meaning>.*(?:\n {5}.*)*)", re.MULTILINE)
_EVERY: Final = "every command"
_PROCESSES: Final = "`carina-controller`, `carina-kubelet-plugin`, `carina-sharing`"


def page() -> str:
    """The page, in Markdown."""
    parsers = {name: _parser(name) for name in installed()}
    return markdown.page(
        "Commands",
        "the parsers of the commands",
        [
            *paragraph(
                "`carina COMMAND` and `kubectl carina COMMAND` are the same. "
                "[commands.md](../commands.md) shows what they print. "
                f"The processes {_PROCESSES} take [settings](settings.md)."
            ),
            "",
            *table(
                ("command", "what it does"),
                (
                    (f"[`carina {name}`](#carina-{name})", sentence(listed.summary))
                    for name, listed in installed().items()
                ),
            ),
        ],
        *(_section(name, parser) for name, parser in parsers.items()),
        ["## Exit codes", "", *table(("of", "code", "meaning"), _codes(parsers))],
    )


def arguments(parser: ArgumentParser) -> tuple[Action, ...]:
    """The arguments of a command, without `--help`."""
    # The library has no public list of them; argcomplete reads the same.
    actions = parser._actions  # noqa: SLF001
    return tuple(action for action in actions if not isinstance(action, _HelpAction))


def exit_codes(parser: ArgumentParser) -> Mapping[int, str]:
    """What the exit codes of a command mean, as its `--help` says it."""
    return {
        int(match["code"]): " ".join(match["meaning"].split())
        for match in _CODE.finditer(parser.epilog or "")
    }


def _parser(name: str) -> ArgumentParser:
    parser = ArgumentParser(prog=f"carina {name}")
    installed()[name].load().add_arguments(parser)
    return parser


def _section(name: str, parser: ArgumentParser) -> Iterator[str]:
    yield f"## carina {name}"
    yield ""
    if parser.usage:
        yield from ("```", parser.usage, "```", "")
    yield from table(
        ("argument", "value", "meaning"),
        (
            (code(_spelling(action)), code(_value(action)), _help(action))
            for action in arguments(parser)
        ),
    )


def _spelling(action: Action) -> str:
    return ", ".join(action.option_strings) or str(action.metavar or action.dest)


def _value(action: Action) -> str:
    if action.choices is not None:
        return "|".join(map(str, action.choices))
    if action.nargs == 0 or not action.option_strings:
        return ""
    return str(action.metavar or action.dest.upper())


def _help(action: Action) -> str:
    default = None if action.default is SUPPRESS else action.default
    return sentence((action.help or "") % {**vars(action), "default": default})


def _codes(parsers: Mapping[str, ArgumentParser]) -> Iterator[tuple[str, str, str]]:
    for number, meaning in sorted(command.EXIT_CODES.items()):
        yield _EVERY, str(number), sentence(meaning)
    for name, parser in parsers.items():
        for number, meaning in exit_codes(parser).items():
            yield code(f"carina {name}"), str(number), sentence(meaning)
    for number, meaning in program.EXIT_CODES.items():
        yield _PROCESSES, str(number), sentence(meaning)
