"""The `carina` command: how subcommands are found and called."""

from argparse import ArgumentParser, Namespace

import pytest

from carina_dra.cli import command
from carina_dra.cli.command import Command


def _count_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("words", nargs="*")


def _count(arguments: Namespace) -> int:
    return len(arguments.words)


COMMANDS = {
    "count": Command("counts words", _count_arguments, _count),
    "fail": Command("always fails", lambda parser: None, lambda arguments: 9),
}


def test_a_subcommand_gets_its_arguments_and_gives_the_exit_code() -> None:
    assert command.run(["count", "one", "two"], COMMANDS) == 2
    assert command.run(["fail"], COMMANDS) == 9


def test_help_lists_every_command_with_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(["--help"], COMMANDS)

    assert end.value.code == 0
    lines = [line.split(maxsplit=1) for line in capsys.readouterr().out.splitlines()]
    assert ["count", "counts words"] in lines
    assert ["fail", "always fails"] in lines


def test_version_is_the_distribution_s(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(["--version"], COMMANDS)

    assert end.value.code == 0
    assert capsys.readouterr().out.startswith("carina 0.")


@pytest.mark.parametrize("arguments", [[], ["no-such-command"], ["--no-such-option"]])
def test_wrong_usage_ends_with_code_2(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        command.run(arguments, COMMANDS)

    assert end.value.code == 2
