"""Optional values (cel-go's optional types, with `first` and `last` of lists)."""

from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import elements
from carina_dra.cel.functions.overload import function, method, one_unit
from carina_dra.cel.types import BOOL, A, list_of, optional_of
from carina_dra.cel.values import NONE, Duration, Optional, Timestamp, Value


def _value(value: Optional) -> Value:
    if not value.values:
        raise EvaluationError("optional.none() dereference")
    return value.values[0]


def _or(value: Optional, other: Optional) -> Optional:
    return value if value.values else other


def _or_value(value: Optional, other: Value) -> Value:
    return value.values[0] if value.values else other


def _is_zero(value: Value) -> bool:
    if isinstance(value, Duration | Timestamp):
        return value.nanos == 0
    if value is None:
        return True
    return isinstance(value, bool | int | float | str | bytes | tuple | dict) and not value


def _of_non_zero(value: Value) -> Optional:
    return NONE if _is_zero(value) else Optional((value,))


def _present(values: tuple[Optional, ...]) -> tuple[Value, ...]:
    return tuple([value.values[0] for value in values if value.values])


_MAYBE: Final = optional_of(A)

OVERLOADS: Final = (
    function("optional.of", (A,), _MAYBE, lambda value: Optional((value,)), one_unit),
    function("optional.ofNonZeroValue", (A,), _MAYBE, _of_non_zero, one_unit),
    function("optional.none", (), _MAYBE, lambda: NONE),
    function("optional.unwrap", (list_of(_MAYBE),), list_of(A), _present, elements),
    method("unwrapOpt", (list_of(_MAYBE),), list_of(A), _present, elements),
    method("hasValue", (_MAYBE,), BOOL, lambda value: bool(value.values), one_unit),
    method("value", (_MAYBE,), A, _value, one_unit),
    method("or", (_MAYBE, _MAYBE), _MAYBE, _or, one_unit),
    method("orValue", (_MAYBE, A), A, _or_value, one_unit),
    method("first", (list_of(A),), _MAYBE, lambda items: Optional(items[:1]), one_unit),
    method("last", (list_of(A),), _MAYBE, lambda items: Optional(items[-1:]), one_unit),
)
