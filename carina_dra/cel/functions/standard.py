"""Operators, sizes, strings and conversions of the standard environment (CEL specification)."""

import math
import re
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import (
    comparison,
    constant,
    joined,
    made,
    membership,
    read,
    search,
    tenth,
)
from carina_dra.cel.functions.overload import Overload, function, method, one_unit
from carina_dra.cel.functions.times import parse_duration, parse_timestamp, written
from carina_dra.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    NULL,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    B,
    Type,
    list_of,
    map_of,
    type_of,
)
from carina_dra.cel.values import (
    INT64_MAX,
    INT64_MIN,
    UINT64_MAX,
    Duration,
    Timestamp,
    TypeValue,
    Uint,
    Value,
    equal,
    find,
    is_same,
    kind,
    less,
    shown,
)

_INT: Final = re.compile(r"[+-]?[0-9]+", re.ASCII)
_DOUBLE: Final = re.compile(r"[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?", re.ASCII)
_NOT_FINITE: Final = re.compile(r"[+-]?(inf|infinity)|nan", re.ASCII | re.IGNORECASE)
_MAX_DOUBLE: Final = 400
"""The maximal number of characters of a double in a string."""
_FEW_ZEROS, _MANY_DIGITS = 4, 6
"""Beyond these limits Go writes an exponent."""
_TRUE: Final = ("1", "t", "T", "TRUE", "true", "True")
_FALSE: Final = ("0", "f", "F", "FALSE", "false", "False")


def int64(number: int) -> int:
    """A number as an int.

    Raises:
        EvaluationError: it does not fit in 64 bits.
    """
    if INT64_MIN <= number <= INT64_MAX:
        return int(number)
    raise EvaluationError("integer overflow")


def uint64(number: int) -> Uint:
    """A number as a uint.

    Raises:
        EvaluationError: it is negative, or does not fit in 64 bits.
    """
    if 0 <= number <= UINT64_MAX:
        return Uint(number)
    raise EvaluationError("unsigned integer overflow")


def _divide(dividend: int, divisor: int) -> int:
    if divisor == 0:
        raise EvaluationError("division by zero")
    quotient = abs(dividend) // abs(divisor)
    return int64(quotient if (dividend < 0) == (divisor < 0) else -quotient)


def _modulo(dividend: int, divisor: int) -> int:
    if divisor == 0:
        raise EvaluationError("modulus by zero")
    rest = abs(dividend) % abs(divisor)
    return -rest if dividend < 0 else rest


def _divide_double(dividend: float, divisor: float) -> float:
    if divisor == 0:
        if dividend == 0 or math.isnan(dividend):
            return math.nan
        return math.copysign(math.inf, dividend) * math.copysign(1, divisor)
    return dividend / divisor


def _divide_uint(dividend: int, divisor: int) -> Uint:
    if divisor == 0:
        raise EvaluationError("division by zero")
    return Uint(dividend // divisor)


def _modulo_uint(dividend: int, divisor: int) -> Uint:
    if divisor == 0:
        raise EvaluationError("modulus by zero")
    return Uint(dividend % divisor)


def _multiply_double(left: float, right: float) -> float:
    return left * right


def _difference(moment: Timestamp, duration: Duration) -> Timestamp:
    return Timestamp(moment.nanos - duration.nanos)


def _sum_moment(left: Timestamp | Duration, right: Timestamp | Duration) -> Value:
    total = left.nanos + right.nanos
    if isinstance(left, Timestamp) or isinstance(right, Timestamp):
        return Timestamp(total)
    return Duration(int64(total))


def _span(left: Timestamp | Duration, right: Timestamp | Duration) -> Duration:
    return Duration(int64(left.nanos - right.nanos))


def _contained(item: Value, among: tuple[Value, ...]) -> bool:
    return any(is_same(element, item) for element in among)


def _has_key(key: Value, among: dict[Value, Value]) -> bool:
    return bool(find(among, key))


def _to_int(value: Value) -> int:
    if isinstance(value, float):
        if not -(2.0**63) < value < 2.0**63:
            raise EvaluationError("integer overflow")
        return int(value)
    if isinstance(value, str):
        if not _INT.fullmatch(value) or len(value) > 32:
            raise EvaluationError(f"type conversion error from 'string' to 'int': {shown(value)}")
        return int64(int(value))
    if isinstance(value, Timestamp):
        return value.nanos // 10**9
    return int64(int(value))


def _to_uint(value: Value) -> Uint:
    if isinstance(value, float):
        if not 0 <= value < 2.0**64:
            raise EvaluationError("unsigned integer overflow")
        return Uint(int(value))
    if isinstance(value, str):
        if not value.isdecimal() or not value.isascii() or len(value) > 32:
            raise EvaluationError(f"type conversion error from 'string' to 'uint': {shown(value)}")
        return uint64(int(value))
    return uint64(int(value))


def _to_double(value: Value) -> float:
    if isinstance(value, str):
        if len(value) > _MAX_DOUBLE:
            raise EvaluationError("type conversion error from 'string' to 'double': it is too long")
        if _DOUBLE.fullmatch(value) and math.isfinite(float(value)):
            return float(value)
        if _NOT_FINITE.fullmatch(value):
            return float(value)
        raise EvaluationError(f"type conversion error from 'string' to 'double': {value!r}")
    return float(value)


def _to_string(value: Value) -> str:
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            raise EvaluationError("invalid UTF-8 in bytes, cannot convert to string") from None
    return text_of(value)


def text_of(value: Value) -> str:
    """A scalar as a string, in Go's notation."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return double_text(value)
    if isinstance(value, Timestamp | Duration):
        return written(value)
    return str(value)


def double_text(value: float) -> str:
    """The shortest form of a double, as written by Go's `%g`."""
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    magnitude = len(digits) - 1 + int(exponent)
    if value == 0 or -_FEW_ZEROS <= magnitude < _MANY_DIGITS:
        text = format(Decimal(repr(value)), "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    mantissa = "".join(map(str, digits))
    point = f"{mantissa[0]}.{mantissa[1:]}".rstrip(".")
    return f"{'-' if sign else ''}{point}e{'-' if magnitude < 0 else '+'}{abs(magnitude):02d}"


def _to_bool(value: Value) -> bool:
    if isinstance(value, bool):
        return value
    if value in _TRUE:
        return True
    if value in _FALSE:
        return False
    raise EvaluationError(f"type conversion error from 'string' to 'bool': {shown(value)}")


def _type(value: Value) -> TypeValue:
    return TypeValue(kind(value))


def _same(value: Value) -> Value:
    return value


def _size(value: Value) -> int:
    return len(value)


def _negate(value: int) -> int:
    return int64(-value)


def _not(value: bool) -> bool:  # noqa: FBT001 - an operand
    return not value


def _swapped(compare: Callable[[Value, Value], bool]) -> Callable[[Value, Value], bool]:
    return lambda left, right: compare(right, left)


def _at_most(left: Value, right: Value) -> bool:
    return less(left, right) or equal(left, right)


def _unequal(left: Value, right: Value) -> bool:
    return not is_same(left, right)


_LIST: Final = list_of(A)
_MAP: Final = map_of(A, B)

_ARITHMETIC: Final = (
    # An open type takes the first overload, so the order is that of cel-go.
    function("_+_", (BYTES, BYTES), BYTES, lambda a, b: a + b, joined),
    function("_+_", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a + b),
    function("_+_", (INT, INT), INT, lambda a, b: int64(a + b)),
    function("_+_", (_LIST, _LIST), _LIST, lambda a, b: a + b, joined),
    function("_+_", (STRING, STRING), STRING, lambda a, b: a + b, joined),
    function("_+_", (UINT, UINT), UINT, lambda a, b: uint64(a + b)),
    function("_+_", (DURATION, DURATION), DURATION, _sum_moment),
    function("_+_", (TIMESTAMP, DURATION), TIMESTAMP, _sum_moment),
    function("_+_", (DURATION, TIMESTAMP), TIMESTAMP, _sum_moment),
    function("_-_", (DOUBLE, DOUBLE), DOUBLE, lambda a, b: a - b),
    function("_-_", (INT, INT), INT, lambda a, b: int64(a - b)),
    function("_-_", (UINT, UINT), UINT, lambda a, b: uint64(a - b)),
    function(
        "_-_", (DURATION, DURATION), DURATION, lambda a, b: Duration(int64(a.nanos - b.nanos))
    ),
    function(
        "_-_", (TIMESTAMP, TIMESTAMP), DURATION, lambda a, b: Duration(int64(a.nanos - b.nanos))
    ),
    function("_-_", (TIMESTAMP, DURATION), TIMESTAMP, _difference),
    function("_*_", (DOUBLE, DOUBLE), DOUBLE, _multiply_double),
    function("_*_", (INT, INT), INT, lambda a, b: int64(a * b)),
    function("_*_", (UINT, UINT), UINT, lambda a, b: uint64(a * b)),
    function("_/_", (DOUBLE, DOUBLE), DOUBLE, _divide_double),
    function("_/_", (INT, INT), INT, _divide),
    function("_/_", (UINT, UINT), UINT, _divide_uint),
    function("_%_", (INT, INT), INT, _modulo),
    function("_%_", (UINT, UINT), UINT, _modulo_uint),
    function("-_", (INT,), INT, _negate),
    function("-_", (DOUBLE,), DOUBLE, lambda a: -a),
    function("!_", (BOOL,), BOOL, _not),
)

_COMPARABLE: Final = (BOOL, INT, UINT, DOUBLE, STRING, BYTES, TIMESTAMP, DURATION)
_NUMERIC: Final = (INT, UINT, DOUBLE)
_ORDERS: Final[tuple[tuple[str, Callable[[Value, Value], bool]], ...]] = (
    ("_<_", less),
    ("_<=_", _at_most),
    ("_>_", _swapped(less)),
    ("_>=_", _swapped(_at_most)),
)
_COMPARISONS: Final = (
    function("_==_", (A, A), BOOL, equal, comparison, checks_kinds=True),
    function("_!=_", (A, A), BOOL, _unequal, comparison, checks_kinds=True),
    *(
        function(name, (type_, type_), BOOL, compare, comparison, checks_kinds=True)
        for name, compare in _ORDERS
        for type_ in _COMPARABLE
    ),
    *(
        function(name, (one, other), BOOL, compare, checks_kinds=True)
        for name, compare in _ORDERS
        for one in _NUMERIC
        for other in _NUMERIC
        if one != other
    ),
    function("@in", (A, _LIST), BOOL, _contained, membership),
    function("@in", (A, _MAP), BOOL, _has_key, lambda key, _: read(key)),
)

_SIZES: Final = tuple(
    form("size", (type_,), INT, _size, one_unit)
    for form in (function, method)
    for type_ in (STRING, BYTES, _LIST, _MAP)
)

_TEXTS: Final = (
    method("contains", (STRING, STRING), BOOL, lambda s, part: part in s, search),
    method("startsWith", (STRING, STRING), BOOL, lambda s, part: s.startswith(part),
           lambda _, part: max(1, tenth(len(part)))),
    method("endsWith", (STRING, STRING), BOOL, lambda s, part: s.endswith(part),
           lambda _, part: max(1, tenth(len(part)))),
)  # fmt: skip


def _conversions(
    name: str, result: Type, implementation: Callable[[Value], Value], *given: Type
) -> tuple[Overload, ...]:
    return tuple(
        function(name, (type_,), result, implementation, _COSTS.get(type_)) for type_ in given
    )


_COSTS: Final[dict[Type, Callable[..., int]]] = {
    BYTES: lambda value: made(len(value)),
    STRING: lambda value: 5 + read(value),
    TIMESTAMP: constant(10),
    DURATION: constant(10),
    DOUBLE: constant(10),
}
"""The cost of a conversion of a value of a type; 1 for other types."""


_CONVERSIONS: Final = (
    *_conversions("int", INT, _to_int, INT, UINT, DOUBLE, STRING, TIMESTAMP),
    *_conversions("uint", UINT, _to_uint, UINT, INT, DOUBLE, STRING),
    *_conversions("double", DOUBLE, _to_double, DOUBLE, INT, UINT, STRING),
    *_conversions(
        "string", STRING, _to_string, STRING, BOOL, INT, UINT, DOUBLE, BYTES, TIMESTAMP, DURATION
    ),
    *_conversions("bool", BOOL, _to_bool, BOOL, STRING),
    function("bytes", (BYTES,), BYTES, _same, one_unit),
    function("bytes", (STRING,), BYTES, lambda s: s.encode("utf-8", "surrogatepass"),
             lambda s: made(len(s))),
    function("duration", (DURATION,), DURATION, _same),
    function("duration", (STRING,), DURATION, parse_duration, constant(50)),
    function("timestamp", (TIMESTAMP,), TIMESTAMP, _same),
    function("timestamp", (STRING,), TIMESTAMP, parse_timestamp, constant(20)),
    function("timestamp", (INT,), TIMESTAMP, lambda n: Timestamp(n * 10**9)),
    function("dyn", (A,), DYN, _same, one_unit),
    function("type", (A,), type_of(A), _type, one_unit),
)  # fmt: skip

OVERLOADS: Final = (*_ARITHMETIC, *_COMPARISONS, *_SIZES, *_TEXTS, *_CONVERSIONS)

TYPE_NAMES: Final[dict[str, Type]] = {
    "bool": BOOL,
    "int": INT,
    "uint": UINT,
    "double": DOUBLE,
    "string": STRING,
    "bytes": BYTES,
    "null_type": NULL,
    "type": type_of(DYN),
    "list": list_of(DYN),
    "map": map_of(DYN, DYN),
}
"""The names of types, which are values."""
