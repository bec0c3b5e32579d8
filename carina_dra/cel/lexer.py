"""The tokens of an expression (CEL specification, "Syntax")."""

import re
from dataclasses import dataclass
from enum import Enum
from math import isfinite
from typing import Final

from carina_dra.cel.errors import CompileError
from carina_dra.cel.values import INT64_MAX, UINT64_MAX, Uint, Value

RESERVED: Final = frozenset(
    {
        "as",
        "break",
        "const",
        "continue",
        "else",
        "for",
        "function",
        "if",
        "import",
        "let",
        "loop",
        "package",
        "namespace",
        "return",
        "var",
        "void",
        "while",
    }
)
"""Words that are not allowed as names of variables or functions."""


class TokenKind(Enum):
    """The kind of a token."""

    LITERAL = "literal"
    INTEGER = "integer"
    """Without its sign, so that the smallest integer can be written."""
    NAME = "name"
    SIGN = "sign"
    END = "end"


@dataclass(frozen=True, slots=True)
class Word:
    """A token and its position."""

    kind: TokenKind
    text: str
    value: Value
    at: int


_WORD: Final = re.compile(
    r"""
    (?P<space>(?:[ \t\n\r\f]|//[^\n]*)+)
  | (?P<double>[0-9]*\.[0-9]+(?:[eE][+-]?[0-9]+)?|[0-9]+[eE][+-]?[0-9]+)
  | (?P<int>0x[0-9a-fA-F]+|[0-9]+)(?P<unsigned>[uU]?)
  | (?P<prefix>[rRbB]{0,2})(?P<quote>\"\"\"|'''|\"|')
  | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
  | (?P<sign>\|\||&&|==|!=|<=|>=|[-+*/%<>!?:.,()\[\]{}])
    """,
    re.VERBOSE | re.ASCII,
)
_MAX_DIGITS: Final = 20
"""Of an integer of 64 bits; Python refuses to read more than 4,300 digits."""
_KEYWORDS: Final[dict[str, Value]] = {"true": True, "false": False, "null": None}
_SIMPLE_ESCAPES: Final = {
    **dict(zip("abfnrtv", "\a\b\f\n\r\t\v", strict=True)),
    **{sign: sign for sign in "\\?\"'`"},
}
_NUMBERED_ESCAPE: Final = re.compile(
    r"[xX](?P<byte>[0-9a-fA-F]{2})|(?P<octal>[0-3][0-7]{2})"
    r"|u(?P<short>[0-9a-fA-F]{4})|U(?P<long>[0-9a-fA-F]{8})"
)


def words(text: str) -> list[Word]:
    """The tokens of an expression; the last one marks its end.

    Raises:
        CompileError: the text has something that is not a token.
    """
    found: list[Word] = []
    at = 0
    while at < len(text):
        match = _WORD.match(text, at)
        if match is None:
            raise error(text, at, f"Syntax error: token recognition error at: {text[at]!r}")
        end = match.end()
        if match["quote"] is not None:
            value, end = _string(text, match)
            found.append(Word(TokenKind.LITERAL, text[at:end], value, at))
        elif match["space"] is None:
            found.append(_word(text, match))
        at = end
    found.append(Word(TokenKind.END, "<EOF>", None, len(text)))
    return found


def error(text: str, at: int, problem: str) -> CompileError:
    """An error with the line and column of a position."""
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return CompileError(f"compilation failed: ERROR: <input>:{line}:{column}: {problem}")


def _word(text: str, match: re.Match[str]) -> Word:
    at, written = match.start(), match[0]
    if match["double"] is not None:
        if not isfinite(float(written)):
            raise error(text, at, "invalid double literal")
        return Word(TokenKind.LITERAL, written, float(written), at)
    if match["int"] is not None:
        base = 16 if match["int"].startswith("0x") else 10
        digits = match["int"].removeprefix("0x").lstrip("0") or "0"
        if len(digits) > _MAX_DIGITS:
            raise error(text, at, "invalid int literal")
        number = int(digits, base)
        if match["unsigned"]:
            if number > UINT64_MAX:
                raise error(text, at, "invalid uint literal")
            return Word(TokenKind.LITERAL, written, Uint(number), at)
        if number > INT64_MAX + 1:
            raise error(text, at, "invalid int literal")
        return Word(TokenKind.INTEGER, written, number, at)
    if match["name"] is not None:
        if written in _KEYWORDS:
            return Word(TokenKind.LITERAL, written, _KEYWORDS[written], at)
        return Word(TokenKind.SIGN if written == "in" else TokenKind.NAME, written, None, at)
    return Word(TokenKind.SIGN, written, None, at)


def _string(text: str, begin: re.Match[str]) -> tuple[Value, int]:
    """A string or bytes, and the position of its end."""
    prefix, quote = begin["prefix"].lower(), begin["quote"]
    if prefix not in ("", "r", "b", "rb", "br"):
        raise error(text, begin.start(), "Syntax error: unknown string prefix")
    raw, is_bytes = "r" in prefix, "b" in prefix
    parts: list[str | bytes] = []
    at = begin.end()
    while not text.startswith(quote, at):
        if at >= len(text) or (len(quote) == 1 and text[at] in "\n\r"):
            raise error(text, begin.start(), "Syntax error: the string does not end")
        if text[at] == "\\" and not raw:
            part, at = _escape(text, at + 1, is_bytes=is_bytes)
            parts.append(part)
        else:
            parts.append(text[at])
            at += 1
            if raw and text[at - 1] == "\\" and at < len(text) and text[at] == quote[0]:
                parts.append(text[at])
                at += 1
    end = at + len(quote)
    if is_bytes:
        return b"".join(p.encode() if isinstance(p, str) else p for p in parts), end
    return "".join(p if isinstance(p, str) else p.decode("latin-1") for p in parts), end


def _escape(text: str, at: int, *, is_bytes: bool) -> tuple[str | bytes, int]:
    sign = text[at : at + 1]
    if sign in _SIMPLE_ESCAPES:
        return _SIMPLE_ESCAPES[sign], at + 1
    match = _NUMBERED_ESCAPE.match(text, at)
    if match is None or (is_bytes and (match["short"] or match["long"])):
        raise error(text, at - 1, "Syntax error: unknown escape sequence")
    digits = match["byte"] or match["short"] or match["long"]
    code = int(digits, 16) if digits else int(match["octal"], 8)
    if is_bytes:
        return bytes([code]), match.end()
    if code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
        raise error(text, at - 1, "Syntax error: no Unicode code point")
    return chr(code), match.end()
