"""Strings (cel-go `ext.Strings`, version 2), and the regular expressions of Kubernetes."""

from collections.abc import Callable
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.formatting import format_text
from carina_dra.cel.functions.overload import Overload, function, method, tenth
from carina_dra.cel.functions.regular_expression import compiled
from carina_dra.cel.types import DYN, INT, STRING, Type, list_of
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


def _joined_length(parts: tuple[Value, ...], by: str = "") -> int:
    texts = sum(len(part) for part in parts if isinstance(part, str))
    return max(1, tenth(texts + len(parts) * len(by)))


def _replace(text: str, old: str, new: str, count: int = -1) -> str:
    return text.replace(old, new, max(count, -1))


def _replaced_length(text: str, old: str, new: str, count: int = -1) -> int:
    found = text.count(old)
    return max(1, tenth(len(text) + len(new) * (found if count < 0 else min(found, count))))


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return str(found[0]) if found else ""


def _find_all(text: str, pattern: str, count: int = -1) -> tuple[str, ...]:
    found: list[str] = []
    for match in compiled(pattern).finditer(text):
        if len(found) == count:
            break
        found.append(match[0])
    return tuple(found)


def quote(text: str) -> str:
    """The text as a string literal."""
    return f'"{text.translate(_QUOTED)}"'


def _length(text: str, *_: Value) -> int:
    return max(1, tenth(len(text)))


def _method(
    name: str, more: tuple[Type, ...], result: Type, implementation: Callable[..., Value]
) -> Overload:
    return method(name, (STRING, *more), result, implementation, _length)


_TEXTS: Final = list_of(STRING)

OVERLOADS: Final = (
    _method("charAt", (INT,), STRING, _char_at),
    _method("indexOf", (STRING,), INT, _index_of),
    _method("indexOf", (STRING, INT), INT, _index_of),
    _method("lastIndexOf", (STRING,), INT, _last_index_of),
    _method("lastIndexOf", (STRING, INT), INT, _last_index_of),
    _method("lowerAscii", (), STRING, lambda text: text.translate(_LOWER)),
    _method("upperAscii", (), STRING, lambda text: text.translate(_UPPER)),
    method("replace", (STRING, STRING, STRING), STRING, _replace, _replaced_length),
    method("replace", (STRING, STRING, STRING, INT), STRING, _replace, _replaced_length),
    _method("split", (STRING,), _TEXTS, _split),
    _method("split", (STRING, INT), _TEXTS, _split),
    _method("substring", (INT,), STRING, _substring),
    _method("substring", (INT, INT), STRING, _substring),
    _method("trim", (), STRING, lambda text: text.strip(_SPACE)),
    _method("format", (list_of(DYN),), STRING, format_text),
    method("join", (_TEXTS,), STRING, _join, _joined_length),
    method("join", (_TEXTS, STRING), STRING, _join, _joined_length),
    function("strings.quote", (STRING,), STRING, quote),
    _method("find", (STRING,), STRING, _find),
    _method("findAll", (STRING,), _TEXTS, _find_all),
    _method("findAll", (STRING, INT), _TEXTS, _find_all),
)
