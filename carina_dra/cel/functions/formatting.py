"""`template.format(arguments)` (cel-go `ext.Strings`, version 2, in the locale en_US).

A literal template is checked against the types of its arguments at compile time, other templates
when the expression is evaluated.
"""

import json
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import ordering, weight
from carina_dra.cel.functions.overload import Spend
from carina_dra.cel.functions.standard import text_of
from carina_dra.cel.functions.times import written
from carina_dra.cel.types import DYN, UNBOUND, Type
from carina_dra.cel.values import Value, kind

_PRECISION: Final = 6
_MOST_DIGITS: Final = 100
_CLAUSE_COST: Final = 10
_NESTED_COST: Final = 8
"""The cost of a value within a list or map."""
_TIMES_TEN: Final = "\u00d710"
_SUPERSCRIPT: Final = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_SCALARS: Final = frozenset(
    {"string", "bool", "bytes", "int", "uint", "double", "null_type", "type"}
)
_TIMES: Final = frozenset({"google.protobuf.Duration", "google.protobuf.Timestamp"})


@dataclass(frozen=True, slots=True)
class _Clause:
    """A formatting clause of a template."""

    name: str
    kinds: frozenset[str]
    """The kinds of values that it supports."""
    write: Callable[[Spend, Value, int], str]
    """Writes a value with a precision."""

    def refuses(self, given: str) -> EvaluationError:
        """The error for a value of an unsupported kind."""
        return EvaluationError(
            f"error during formatting: {self.name} clause cannot be used on {given}"
        )


def format_text(spend: Spend, template: str, arguments: tuple[Value, ...]) -> str:
    """Replaces the clauses of a template by the arguments.

    spend: charges for each part before it is made.

    Raises:
        BudgetExceededError: the result is too large.
        EvaluationError: the template is invalid, or does not support the arguments.
    """
    made: list[str] = []
    index = 0
    for part in _parts(template):
        if isinstance(part, str):
            spend(1 + len(part))
            made.append(part)
            continue
        clause, precision = part
        if index == len(arguments):
            raise EvaluationError(f"index {index} out of range")
        value = arguments[index]
        index += 1
        if kind(value) not in clause.kinds:
            raise clause.refuses(kind(value))
        spend(_CLAUSE_COST + precision + (len(value) if isinstance(value, str | bytes) else 0))
        made.append(clause.write(spend, value, precision))
    return "".join(made)


def check_format(template: str, types: Sequence[Type]) -> None:
    """Checks a template against the types of its arguments.

    Raises:
        EvaluationError: the template is invalid, or does not support arguments of these types.
    """
    clauses = [part[0] for part in _parts(template) if not isinstance(part, str)]
    if len(clauses) > len(types):
        raise EvaluationError(f"index {len(types)} out of range")
    if len(clauses) < len(types):
        raise EvaluationError(
            "too many arguments supplied to string.format "
            f"(expected {len(clauses)}, got {len(types)})"
        )
    for clause, given in zip(clauses, types, strict=True):
        for type_ in (given, *(given.parameters if given.name in ("list", "map") else ())):
            if type_ not in (DYN, UNBOUND) and type_.name not in clause.kinds:
                raise clause.refuses(type_.name)


def _parts(template: str) -> Iterator[str | tuple[_Clause, int]]:
    at = 0
    while (sign := template.find("%", at)) >= 0:
        yield template[at:sign]
        at = sign + 1
        if at == len(template):
            raise EvaluationError("unexpected end of string")
        if template[at] == "%":
            yield "%"
            at += 1
            continue
        precision, at = _precision(template, at)
        clause = _CLAUSES.get(template[at : at + 1])
        if clause is None:
            raise EvaluationError(
                "could not parse formatting clause: unrecognized formatting clause "
                f'"{template[at : at + 1]}"'
            )
        yield clause, precision
        at += 1
    yield template[at:]


def _precision(template: str, at: int) -> tuple[int, int]:
    if template[at] != ".":
        return _PRECISION, at
    end = at + 1
    while template[end : end + 1].isdecimal():
        end += 1
    digits = template[at + 1 : end]
    if not digits.isascii() or not digits:
        raise EvaluationError("could not parse formatting clause: error while parsing precision")
    return min(int(digits[:4]), 10 * _MOST_DIGITS), end


def _string(spend: Spend, value: Value, _: int) -> str:
    match kind(value):
        case "list" | "map":
            spend(_NESTED_COST * weight(value))
            return _nested(spend, value)
        case "null_type":
            return "null"
        case "type":
            return str(value.name)
        case "bytes":
            try:
                return str(value.decode())
            except UnicodeDecodeError:
                raise EvaluationError("error during formatting: invalid UTF-8 in bytes") from None
        case _:
            return text_of(value)


def _nested(spend: Spend, value: Value) -> str:
    """A value within a list or map. The number of its elements is charged already."""
    spend(len(value) if isinstance(value, str | bytes) else 0)
    match kind(value):
        case "list":
            return f"[{_enumerated(spend, [_nested(spend, item) for item in value])}]"
        case "map":
            entries = [
                f"{_nested(spend, key)}:{_nested(spend, item)}" for key, item in value.items()
            ]
            spend(ordering(entries))
            return f"{{{_enumerated(spend, sorted(entries))}}}"
        case "string":
            return json.dumps(value, ensure_ascii=False)
        case "bytes":
            return f'b"{value.decode("utf-8", "replace")}"'
        case "double":
            return f"{value:.6f}" if math.isfinite(value) else f'"{text_of(value)}"'
        case "google.protobuf.Duration":
            return f'duration("{written(value)}")'
        case "google.protobuf.Timestamp":
            return f'timestamp("{written(value)}")'
        case given if given in _SCALARS:
            return _string(spend, value, 0)
        case given:
            raise _STRING.refuses(given)


def _enumerated(spend: Spend, parts: list[str]) -> str:
    spend(sum(map(len, parts)) // 4)
    return ", ".join(parts)


def _fixed(_: Spend, value: float, precision: int) -> str:
    return f"{value:,.{precision}f}" if math.isfinite(value) else _not_finite(value)


def _scientific(_: Spend, value: float, precision: int) -> str:
    if not math.isfinite(value):
        return _not_finite(value)
    mantissa, __, exponent = f"{value:.{precision}e}".partition("e")
    sign = "-" if exponent.startswith("-") else ""
    return f"{mantissa}{_TIMES_TEN}{(sign + exponent[1:]).translate(_SUPERSCRIPT)}"


def _not_finite(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    return "∞" if value > 0 else "-∞"


def _hexadecimal(_: Spend, value: Value, __: int) -> str:
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass").hex()
    return value.hex() if isinstance(value, bytes) else f"{int(value):x}"


_STRING: Final = _Clause("string", _SCALARS | _TIMES | {"list", "map"}, _string)
_INTEGERS: Final = frozenset({"int", "uint"})
_HEXADECIMAL: Final = _Clause("hex", _INTEGERS | {"string", "bytes"}, _hexadecimal)
_CLAUSES: Final = {
    "s": _STRING,
    "d": _Clause("decimal", _INTEGERS, lambda _, value, __: str(int(value))),
    "f": _Clause("fixed-point", frozenset({"double"}), _fixed),
    "e": _Clause("scientific", frozenset({"double"}), _scientific),
    "b": _Clause("binary", _INTEGERS | {"bool"}, lambda _, value, __: f"{int(value):b}"),
    "o": _Clause("octal", _INTEGERS, lambda _, value, __: f"{int(value):o}"),
    "x": _HEXADECIMAL,
    "X": _Clause("hex", _HEXADECIMAL.kinds, lambda *given: _hexadecimal(*given).upper()),
}
