"""Lists and sets (cel-go `ext.Lists` version 3 and `ext.Sets`; the list library of Kubernetes)."""

from collections.abc import Callable, Sequence
from functools import cmp_to_key
from itertools import pairwise
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.overload import Overload, function, method
from carina_dra.cel.functions.standard import int64, uint64
from carina_dra.cel.types import (
    BOOL,
    BYTES,
    DOUBLE,
    DURATION,
    DYN,
    INT,
    STRING,
    TIMESTAMP,
    UINT,
    A,
    Type,
    list_of,
)
from carina_dra.cel.values import Duration, Uint, Value, is_same, kind, less, no_overload

_LONGEST: Final = 1_000_000


def ordered(items: Sequence[Value], keys: Sequence[Value]) -> tuple[Value, ...]:
    """The items, sorted by their keys.

    Raises:
        EvaluationError: the keys are of different kinds, or of one without an order.
    """
    if len({kind(key) for key in keys}) > 1:
        raise EvaluationError("list elements must have the same type")

    def compare(one: int, other: int) -> int:
        if less(keys[one], keys[other]):
            return -1
        return 1 if less(keys[other], keys[one]) else 0

    if len(keys) == 1:
        less(keys[0], keys[0])
    return tuple(items[index] for index in sorted(range(len(items)), key=cmp_to_key(compare)))


def _slice(items: tuple[Value, ...], begin: int, end: int) -> tuple[Value, ...]:
    if begin < 0 or end < 0:
        raise EvaluationError(f"cannot slice({begin}, {end}), negative indexes not supported")
    if begin > end:
        raise EvaluationError(f"cannot slice({begin}, {end}), start must not be after end")
    if end > len(items):
        raise EvaluationError(f"cannot slice({begin}, {end}), list is length {len(items)}")
    return items[begin:end]


def _flatten(items: tuple[Value, ...], depth: int = 1) -> tuple[Value, ...]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat = items
    for _ in range(depth):
        if not any(isinstance(item, tuple) for item in flat):
            break
        flat = tuple(
            inner for item in flat for inner in (item if isinstance(item, tuple) else (item,))
        )
    return flat


def _distinct(items: tuple[Value, ...]) -> tuple[Value, ...]:
    found: list[Value] = []
    for item in items:
        if not _contains(found, item):
            found.append(item)
    return tuple(found)


def _range(count: int) -> tuple[Value, ...]:
    if count > _LONGEST:
        raise EvaluationError(f"lists.range: {count} is too many")
    if count < 0:
        raise EvaluationError(f"lists.range: {count} is negative")
    return tuple(range(count))


def _contains(among: Sequence[Value], item: Value) -> bool:
    return any(is_same(element, item) for element in among)


def _contains_all(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return all(_contains(one, item) for item in other)


def _equivalent(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return _contains_all(one, other) and _contains_all(other, one)


def _intersects(one: tuple[Value, ...], other: tuple[Value, ...]) -> bool:
    return any(_contains(one, item) for item in other)


def _is_sorted(items: tuple[Value, ...]) -> bool:
    return all(not less(after, before) for before, after in pairwise(items))


def _least(items: tuple[Value, ...]) -> Value:
    if not items:
        raise EvaluationError("min called on empty list")
    least = items[0]
    for item in items[1:]:
        if less(item, least):
            least = item
    return least


def _most(items: tuple[Value, ...]) -> Value:
    if not items:
        raise EvaluationError("max called on empty list")
    most = items[0]
    for item in items[1:]:
        if less(most, item):
            most = item
    return most


def _index(items: tuple[Value, ...], item: Value) -> int:
    return next((index for index, element in enumerate(items) if is_same(element, item)), -1)


def _last_index(items: tuple[Value, ...], item: Value) -> int:
    return next((index for index in reversed(range(len(items))) if is_same(items[index], item)), -1)


def _sum(items: tuple[Value, ...]) -> Value:
    """The sum of a list whose element type was not known at compile time."""
    kinds = {kind(item) for item in items}
    match kinds.pop() if len(kinds) == 1 else None:
        case "uint":
            return uint64(sum(items))
        case "double":
            return float(sum(items))
        case "google.protobuf.Duration":
            return Duration(int64(sum(item.nanos for item in items)))
        case "int":
            return int64(sum(items))
        case None if not items:
            return 0
        case _:
            raise no_overload()


_EMPTY_SUMS: Final[dict[Type, Value]] = {
    INT: 0,
    UINT: Uint(0),
    DOUBLE: 0.0,
    DURATION: Duration(0),
}


def _sum_of(item: Type) -> Callable[[tuple[Value, ...]], Value]:
    return lambda items: _sum(items) if items else _EMPTY_SUMS[item]


def _for_each(
    name: str, items: tuple[Type, ...], result: Type | None, implementation: Callable[..., Value]
) -> tuple[Overload, ...]:
    return tuple(
        method(name, (list_of(item),), result or item, implementation, len) for item in items
    )


_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_LIST: Final = list_of(A)


def _size(items: tuple[Value, ...], *_: Value) -> int:
    return max(1, len(items))


def _product(one: tuple[Value, ...], other: tuple[Value, ...]) -> int:
    return max(1, len(one) * len(other))


OVERLOADS: Final = (
    method("slice", (_LIST, INT, INT), _LIST, _slice, _size),
    method("flatten", (list_of(_LIST),), _LIST, _flatten, _size),
    method("flatten", (list_of(DYN),), list_of(DYN), _flatten, _size),
    method("flatten", (list_of(DYN), INT), list_of(DYN), _flatten, _size),
    *(
        method("sort", (list_of(item),), list_of(item), lambda items: ordered(items, items), _size)
        for item in _COMPARABLE
    ),
    method("distinct", (_LIST,), _LIST, _distinct, lambda items: max(1, len(items) ** 2)),
    method("reverse", (_LIST,), _LIST, lambda items: items[::-1], _size),
    function("lists.range", (INT,), list_of(INT), _range, lambda count: max(1, count)),
    function("sets.contains", (_LIST, _LIST), BOOL, _contains_all, _product),
    function("sets.equivalent", (_LIST, _LIST), BOOL, _equivalent, _product),
    function("sets.intersects", (_LIST, _LIST), BOOL, _intersects, _product),
    *_for_each("isSorted", _COMPARABLE, BOOL, _is_sorted),
    *_for_each("min", _COMPARABLE, None, _least),
    *_for_each("max", _COMPARABLE, None, _most),
    *(
        method("sum", (list_of(item),), item, _sum_of(item), _size)
        for item in (INT, UINT, DOUBLE, DURATION)
    ),
    method("indexOf", (_LIST, A), INT, _index, _size),
    method("lastIndexOf", (_LIST, A), INT, _last_index, _size),
)
