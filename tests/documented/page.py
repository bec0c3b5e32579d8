"""What a page has its reader do.

A fence ` ```yaml title="NAME"` is a file of that name. In a fence ` ```console`, a line that begins
with `$ ` is a command, and the lines below it are what it prints: all of it, where `...` stands for
any number of lines. A command with nothing below it may print anything. Other fences are to be
read only.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, TypeAlias

ANY_LINES: Final = "..."
_PROMPT: Final = "$ "
_FENCE: Final = re.compile(
    r"^ *```(?P<information>[^\n]*)\n(?P<body>.*?)^ *```$", re.MULTILINE | re.DOTALL
)
_TITLE: Final = re.compile(r'title="(?P<title>[^"]+)"')
_CONSOLE: Final = "console"
_PROGRAMS: Final = re.compile(r"^ *(?:\$ )?(?:carina|helm|kubectl|make|podman) .*$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file that the reader writes."""

    name: str
    text: str


@dataclass(frozen=True, slots=True)
class PageCommand:
    """A command that the reader runs."""

    line: str
    output: tuple[str, ...] | None
    """The lines that it prints; None if the page does not show them."""

    def prints(self, output: str) -> bool:
        """Whether this is what the page shows, without spaces at the ends of lines."""
        if self.output is None:
            return True
        shown = "".join(
            r"(?:.*\n)*" if line == ANY_LINES else re.escape(line) + r" *\n" for line in self.output
        )
        return re.fullmatch(shown, output if output.endswith("\n") else output + "\n") is not None


def unmarked(page: str) -> list[str]:
    """Commands in fences that nobody runs, since these are no consoles."""
    return [
        command.strip()
        for fence in _FENCE.finditer(page)
        if not fence["information"]
        for command in _PROGRAMS.findall(fence["body"])
    ]


Step: TypeAlias = PageFile | PageCommand


def steps(page: str) -> Iterator[Step]:
    """The steps of a page, in its order."""
    for fence in _FENCE.finditer(page):
        title = _TITLE.search(fence["information"])
        if title is not None:
            yield PageFile(title["title"], fence["body"])
        elif fence["information"] == _CONSOLE:
            yield from _commands(fence["body"].splitlines())


def _commands(lines: list[str]) -> Iterator[PageCommand]:
    starts = [number for number, line in enumerate(lines) if line.startswith(_PROMPT)]
    if not starts or starts[0] != 0:
        raise ValueError(f"a console begins with a command, after {_PROMPT!r}: {lines[:1]}")
    for start, end in pairwise([*starts, len(lines)]):
        output = tuple(lines[start + 1 : end])
        yield PageCommand(lines[start].removeprefix(_PROMPT), output or None)
