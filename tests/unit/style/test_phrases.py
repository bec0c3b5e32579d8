"""Docstrings and comments are plain technical English, without phrases to be read twice."""

import re
import tokenize
from pathlib import Path
from typing import Final

_ROOT: Final = Path(__file__).parents[3]
_PACKAGES: Final = ("carina_dra", "controller", "gpu_proof", "kubelet_plugin", "sharing")
_GENERATED: Final = "pb"
_DENIED: Final = re.compile(
    r"""
    ^[rf]?"*Has\b[^.]*\bbe\b   # "Has it be done": say who does what
    | \b[Tt]akes?\ notice\b     # records, applies
    | \bso\ m(any|uch)\b        # a number of, this many
    | \banew\b                  # again
    | \bwho(m)?ever\b           # anybody who
    | \bhow\ manieth\b          # the index
    | \bno\ matter\ to\b
    """,
    re.VERBOSE,
)


def _texts(source: Path) -> list[tuple[int, str]]:
    """The comments and docstrings, with their lines."""
    with tokenize.open(source) as lines:
        tokens = list(tokenize.generate_tokens(lines.readline))
    return [
        (token.start[0], token.string)
        for token in tokens
        if token.type == tokenize.COMMENT or token.string.startswith('"""')
    ]


def test_no_docstring_has_a_denied_phrase() -> None:
    found = [
        f"{source.relative_to(_ROOT)}:{line}: {text.splitlines()[0]}"
        for package in _PACKAGES
        for source in sorted((_ROOT / package).rglob("*.py"))
        if _GENERATED not in source.parts
        for line, text in _texts(source)
        if _DENIED.search(text)
    ]
    assert found == []
