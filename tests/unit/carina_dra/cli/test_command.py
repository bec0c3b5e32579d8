"""The `carina` command: how subcommands are found and called."""

import os
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from pathlib import Path

import pytest

from carina_dra.cli import command
from carina_dra.cli.command import Command, ListedCommand, in_module


def _count_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("words", nargs="*")


def _count(arguments: Namespace) -> int:
    return len(arguments.words)


COMMANDS = {
    "count": ListedCommand("counts words", lambda: Command(_count_arguments, _count)),
    "fail": ListedCommand(
        "always fails", lambda: Command(lambda parser: None, lambda arguments: 9)
    ),
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


def test_only_the_chosen_command_is_loaded() -> None:
    commands = {**COMMANDS, "broken": in_module("no.such.module", "cannot be loaded")}

    assert command.run(["fail"], commands) == 9
    with pytest.raises(ModuleNotFoundError):
        command.run(["broken"], commands)


def test_every_installed_command_can_be_loaded(capsys: pytest.CaptureFixture[str]) -> None:
    commands = command.installed()

    assert {"allocate", "free", "inventory", "queue", "simulate", "why"} <= commands.keys()
    for name, listed in commands.items():
        with pytest.raises(SystemExit) as end:
            command.run([name, "--help"], commands)
        assert end.value.code == 0
        assert listed.summary in " ".join(capsys.readouterr().out.split())


@pytest.mark.parametrize(
    ("arguments", "needed"),
    [
        (["--help"], {"grpc", "kubernetes", "pydantic", "urllib3", "yaml"}),
        (["doctor", "--help"], {"grpc", "kubernetes", "pydantic", "urllib3"}),
    ],
)
def test_help_loads_nothing_that_a_command_needs(arguments: list[str], needed: set[str]) -> None:
    program = """
import sys
from carina_dra.cli import command

try:
    command.run(sys.argv[1:], command.installed())
except SystemExit:
    pass
print(*sys.modules)
"""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True
    )

    assert not needed & set(done.stdout.splitlines()[-1].split())


_PROGRAM = """
import sys
from carina_dra.cli import command

def write(arguments):
    print("x" * int(arguments.words[0]))
    return 3

command.installed = lambda: {
    "write": command.ListedCommand(
        "", lambda: command.Command(lambda parser: parser.add_argument("words", nargs="*"), write)
    )
}
sys.exit(command.main())
"""
"""A command that writes as many bytes as its argument says."""


@pytest.fixture(params=[1, 1_000_000])
def writing(request: pytest.FixtureRequest) -> list[str]:
    """A program that writes less than Python's buffer, or more."""
    return [sys.executable, "-c", _PROGRAM, "write", str(request.param)]


def test_output_without_a_reader_ends_the_program_in_silence(writing: list[str]) -> None:
    reader, writer = os.pipe()
    os.close(reader)
    done = subprocess.run(writing, stdout=writer, stderr=subprocess.PIPE, check=False)
    os.close(writer)
    assert (done.returncode, done.stderr) == (141, b"")


def test_output_may_be_closed(writing: list[str]) -> None:
    done = subprocess.run(
        ["sh", "-c", '"$@" >&-', "sh", *writing], capture_output=True, check=False
    )
    assert (done.returncode, done.stderr) == (3, b"")


def test_output_that_cannot_be_written_is_an_error_in_one_line(writing: list[str]) -> None:
    with Path("/dev/full").open("wb") as full:
        done = subprocess.run(writing, stdout=full, stderr=subprocess.PIPE, check=False)
    assert done.returncode == 1
    assert done.stderr == b"carina: [Errno 28] No space left on device\n"


def test_an_interrupt_from_the_keyboard_ends_the_program_in_silence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> dict[str, ListedCommand]:
        raise KeyboardInterrupt

    monkeypatch.setattr(command, "installed", interrupted)
    assert command.main() == 130
    assert capsys.readouterr() == ("", "")
