"""Strings (cel-go `ext.Strings`, version 2)."""

from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import (
    concatenated,
    elements,
    made,
    read,
    replaced,
    search,
    split,
    tenth,
)
from carina_dra.cel.functions.formatting import format_text
from carina_dra.cel.functions.overload import function, method
from carina_dra.cel.types import DYN, INT, STRING, list_of
from carina_dra.cel.values import (
    Value,
    no_overload,
)

_SPACE: Final = (
    "\t\n\v\f\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a"
    "\u2028\u2029\u202f\u205f\u3000"
)
_LOWER: Final = {upper: upper + 32 for upper in range(ord("A"), ord("Z") + 1)}
_UPPER: Final = {lower: lower - 32 for lower in range(ord("a"), ord("z") + 1)}
_QUOTED: Final = str.maketrans(
    {
        "\a": "\\a",
        "\b": "\\b",
        "\f": "\\f",
        "\n": "\\n",
        "\r": "\\r",
        "\t": "\\t",
        "\v": "\\v",
        "\\": "\\\\",
        '"': '\\"',
    }
)


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, begin: int = 0) -> int:
    if begin < 0:
        raise EvaluationError(f"index out of range: {begin}")
    return text.find(part, begin)


def _last_index_of(text: str, part: str, last: int | None = None) -> int:
    if last is None:
        return text.rfind(part)
    if last < 0:
        raise EvaluationError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part)) if last < len(text) else -1


def _split(text: str, by: str, count: int = -1) -> tuple[str, ...]:
    if count == 0:
        return ()
    if by == "":
        if count < 0 or count > len(text):
            return tuple(text)
        return (*text[: count - 1], text[count - 1 :])
    return tuple(text.split(by, count - 1 if count > 0 else -1))


def _substring(text: str, begin: int, end: int | None = None) -> str:
    end = len(text) if end is None else end
    if not 0 <= begin <= len(text):
        raise EvaluationError(f"index out of range: {begin}")
    if not 0 <= end <= len(text):
        raise EvaluationError(f"index out of range: {end}")
    if begin > end:
        raise EvaluationError(f"invalid substring range. start: {begin}, end: {end}")
    return text[begin:end]


def _join(parts: tuple[Value, ...], by: str = "") -> str:
    if not all(isinstance(part, str) for part in parts):
        raise no_overload()
    return by.join(parts)


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, max(count, -1))


def quote(text: str) -> str:
    """The text as a string literal."""
    return f'"{text.translate(_QUOTED)}"'


def _translated(text: str) -> int:
    """The cost of a translation character by character."""
    return 1 + len(text)


def _searched(text: str, part: str, _: int = 0) -> int:
    return search(text, part)


def _cut(text: str, begin: int, end: int | None = None) -> int:
    """The cost of a substring."""
    end = len(text) if end is None else min(end, len(text))
    return made(max(0, end - max(begin, 0)))


_TEXTS: Final = list_of(STRING)
_SEARCHES: Final = (("indexOf", _index_of), ("lastIndexOf", _last_index_of))

OVERLOADS: Final = (
    method("charAt", (STRING, INT), STRING, _char_at, lambda text, _: max(1, tenth(len(text)))),
    *(
        method(name, parameters, INT, implementation, _searched)
        for name, implementation in _SEARCHES
        for parameters in ((STRING, STRING), (STRING, STRING, INT))
    ),
    method("lowerAscii", (STRING,), STRING, lambda text: text.translate(_LOWER), _translated),
    method("upperAscii", (STRING,), STRING, lambda text: text.translate(_UPPER), _translated),
    method("replace", (STRING, STRING, STRING), STRING, _replace, replaced),
    method("replace", (STRING, STRING, STRING, INT), STRING, _replace, replaced),
    method("split", (STRING, STRING), _TEXTS, _split, split),
    method("split", (STRING, STRING, INT), _TEXTS, _split, split),
    method("substring", (STRING, INT), STRING, _substring, _cut),
    method("substring", (STRING, INT, INT), STRING, _substring, _cut),
    method("trim", (STRING,), STRING, lambda text: text.strip(_SPACE),
           lambda text: made(len(text))),
    method("format", (STRING, list_of(DYN)), STRING, format_text,
           lambda text, arguments: read(text) + elements(arguments), spends=True),
    method("join", (_TEXTS,), STRING, _join, concatenated),
    method("join", (_TEXTS, STRING), STRING, _join, concatenated),
    function("strings.quote", (STRING,), STRING, quote, _translated),
)  # fmt: skip
