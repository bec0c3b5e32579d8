"""Texts (cel-go `ext.Strings`, version 2), and looking for patterns in them (Kubernetes)."""

import math
from collections.abc import Callable
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.overload import Overload, function, method, tenth
from carina_dra.cel.functions.regular_expression import compiled
from carina_dra.cel.functions.standard import plain_text, text_of
from carina_dra.cel.types import DYN, INT, STRING, Type, list_of
from carina_dra.cel.values import (
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    kind,
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
_MOST_DIGITS: Final = 100


def _char_at(text: str, index: int) -> str:
    if not 0 <= index <= len(text):
        raise EvaluationError(f"index out of range: {index}")
    return text[index : index + 1]


def _index_of(text: str, part: str, begin: int = 0) -> int:
    if part == "":
        return begin
    if not 0 <= begin <= len(text):
        raise EvaluationError(f"index out of range: {begin}")
    return text.find(part, begin)


def _last_index_of(text: str, part: str, last: int | None = None) -> int:
    if part == "":
        return len(text) if last is None else last
    if last is None:
        return text.rfind(part)
    if not 0 <= last < len(text):
        raise EvaluationError(f"index out of range: {last}")
    return text.rfind(part, 0, last + len(part))


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


def _find(text: str, pattern: str) -> str:
    found = compiled(pattern).search(text)
    return str(found[0]) if found else ""


def _find_all(text: str, pattern: str, count: int = -1) -> tuple[str, ...]:
    found: list[str] = []
    for each in compiled(pattern).finditer(text):
        if len(found) == count:
            break
        found.append(each[0])
    return tuple(found)


def quote(text: str) -> str:
    """The text as it would be written in an expression."""
    return f'"{text.translate(_QUOTED)}"'


def format_text(template: str, arguments: tuple[Value, ...]) -> str:
    """Fills arguments in, as `%s`, `%d`, `%f`, `%e`, `%b`, `%x`, `%X` and `%o` say.

    Raises:
        EvaluationError: the template is wrong, or an argument does not suit it.
    """
    parts: list[str] = []
    rest = iter(arguments)
    at = 0
    while (sign := template.find("%", at)) >= 0:
        parts.append(template[at:sign])
        at = sign + 1
        if template[at : at + 1] == "%":
            parts.append("%")
            at += 1
            continue
        precision, at = _precision(template, at)
        clause = template[at : at + 1]
        at += 1
        if clause not in _CLAUSES:
            raise EvaluationError(f'could not parse formatting clause: unrecognized "{clause}"')
        try:
            argument = next(rest)
        except StopIteration:
            raise EvaluationError(f"index {len(arguments)} out of range") from None
        parts.append(_CLAUSES[clause](argument, precision))
    return "".join((*parts, template[at:]))


def _precision(template: str, at: int) -> tuple[int, int]:
    if template[at : at + 1] != ".":
        return 6, at
    end = at + 1
    while template[end : end + 1].isdigit():
        end += 1
    digits = template[at + 1 : end]
    if len(digits) > 3 or int(digits or 0) > _MOST_DIGITS:
        raise EvaluationError(f"precision {digits} is more than {_MOST_DIGITS}")
    return int(digits or 0), end


def _as_string(value: Value, _: int) -> str:
    match kind(value):
        case "list":
            return f"[{', '.join(_as_string(each, 0) for each in value)}]"
        case "map":
            if not all(kind(key) in ("string", "bool", "int", "uint") for key in value):
                raise no_overload()
            entries = [(_as_string(k, 0), _as_string(v, 0)) for k, v in value.items()]
            return "{" + ", ".join(f"{k}: {v}" for k, v in sorted(entries)) + "}"
        case "null_type":
            return "null"
        case "bytes":
            return str(value.decode("utf-8", "replace"))
        case "type":
            return str(value.name)
        case "string" | "int" | "uint" | "bool":
            return text_of(value)
        case "double":
            text = plain_text(value)
            return {"+Inf": "Infinity", "-Inf": "-Infinity"}.get(text, text)
        case _ if isinstance(value, Timestamp | Duration | TypeValue):
            return text_of(value)
        case other:
            raise EvaluationError(f"error during formatting: string clause cannot take {other}")


def _as_decimal(value: Value, _: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError("error during formatting: decimal clause can only take integers")
    if isinstance(value, float) and math.isfinite(value):
        raise EvaluationError("error during formatting: decimal clause can only take integers")
    return _as_string(value, 0)


def _real(value: Value) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise EvaluationError("error during formatting: clause can only take numbers")
    return float(value)


def _as_fixed(value: Value, precision: int) -> str:
    number = _real(value)
    if not math.isfinite(number):
        return _as_string(number, 0)
    return f"{number:.{precision}f}"


def _as_scientific(value: Value, precision: int) -> str:
    number = _real(value)
    if not math.isfinite(number):
        return _as_string(number, 0)
    return f"{number:.{precision}e}"


def _as_binary(value: Value, _: int) -> str:
    if not isinstance(value, int):
        raise EvaluationError("error during formatting: only integers and bools can be binary")
    return f"{int(value):b}"


def _as_octal(value: Value, _: int) -> str:
    if isinstance(value, bool) or not isinstance(value, int):
        raise EvaluationError("error during formatting: octal clause can only take integers")
    return f"{int(value):o}"


def _as_hex(value: Value, _: int) -> str:
    match value:
        case str():
            return value.encode("utf-8", "surrogatepass").hex()
        case bytes():
            return value.hex()
        case bool():
            pass
        case int() | Uint():
            return f"{int(value):x}"
        case _:
            pass
    raise EvaluationError("error during formatting: only integers and texts can be hexadecimal")


_CLAUSES: Final[dict[str, Callable[[Value, int], str]]] = {
    "s": _as_string,
    "d": _as_decimal,
    "f": _as_fixed,
    "e": _as_scientific,
    "b": _as_binary,
    "x": _as_hex,
    "X": lambda value, _: _as_hex(value, 0).upper(),
    "o": _as_octal,
}


def _length(text: str, *_: Value) -> int:
    return max(1, tenth(len(text)))


def _method(
    name: str, more: tuple[Type, ...], result: Type, does: Callable[..., Value]
) -> Overload:
    return method(name, (STRING, *more), result, does, _length)


_TEXTS: Final = list_of(STRING)

OVERLOADS: Final = (
    _method("charAt", (INT,), STRING, _char_at),
    _method("indexOf", (STRING,), INT, _index_of),
    _method("indexOf", (STRING, INT), INT, _index_of),
    _method("lastIndexOf", (STRING,), INT, _last_index_of),
    _method("lastIndexOf", (STRING, INT), INT, _last_index_of),
    _method("lowerAscii", (), STRING, lambda text: text.translate(_LOWER)),
    _method("upperAscii", (), STRING, lambda text: text.translate(_UPPER)),
    _method("replace", (STRING, STRING), STRING, lambda text, old, new: text.replace(old, new)),
    _method(
        "replace",
        (STRING, STRING, INT),
        STRING,
        lambda text, old, new, count: text.replace(old, new, max(count, -1)),
    ),
    _method("split", (STRING,), _TEXTS, _split),
    _method("split", (STRING, INT), _TEXTS, _split),
    _method("substring", (INT,), STRING, _substring),
    _method("substring", (INT, INT), STRING, _substring),
    _method("trim", (), STRING, lambda text: text.strip(_SPACE)),
    _method("format", (list_of(DYN),), STRING, format_text),
    method("join", (_TEXTS,), STRING, _join),
    method("join", (_TEXTS, STRING), STRING, _join),
    function("strings.quote", (STRING,), STRING, quote),
    _method("find", (STRING,), STRING, _find),
    _method("findAll", (STRING,), _TEXTS, _find_all),
    _method("findAll", (STRING, INT), _TEXTS, _find_all),
)
