"""Completion of command lines, as a shell asks for it."""

import os
import subprocess
import sys

import pytest

_CARINA = (sys.executable, "-c", "from carina_dra.cli.command import main; main()")


def _completions(line: str) -> list[str]:
    """The answer by argcomplete's protocol, on file descriptor 8, without descriptions."""
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_IFS": "\n", "_ARGCOMPLETE_SUPPRESS_SPACE": "1"}
    done = subprocess.run(
        ["sh", "-c", '"$@" 8>&1 >&2', "sh", *_CARINA],
        env={**os.environ, **asked, "COMP_LINE": line, "COMP_POINT": str(len(line.encode()))},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("carina qu", ["queue"]),
        ("kubectl-carina sn", ["snapshot"]),
        ("carina queue --ou", ["--output"]),
        ("carina queue -o ", ["table", "json", "yaml"]),
        ("carina completion ", ["bash", "fish", "zsh"]),
        ("carina no-such-command --ou", []),
    ],
)
def test_what_can_follow(line: str, expected: list[str]) -> None:
    assert _completions(line) == expected


@pytest.mark.parametrize("shell", ["bash", "fish", "zsh"])
def test_code_for_a_shell_completes_carina(shell: str) -> None:
    done = subprocess.run(
        [*_CARINA, "completion", shell], capture_output=True, text=True, check=True
    )

    assert "carina" in done.stdout
    assert "_ARGCOMPLETE" in done.stdout


def test_code_for_bash_is_valid() -> None:
    code = subprocess.run(
        [*_CARINA, "completion", "bash"], capture_output=True, text=True, check=True
    )

    subprocess.run(["bash", "-n"], input=code.stdout, text=True, check=True)
