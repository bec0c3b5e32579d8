"""Lists and sets (cel-go `ext.Lists` version 3 and `ext.Sets`; the list library of Kubernetes)."""

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Final

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import (
    elements,
    membership,
    neighbours,
    ordering,
    pairs,
)
from carina_dra.cel.functions.overload import Overload, Spend, function, method
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
from carina_dra.cel.values import Duration, Timestamp, Uint, Value, is_same, kind, less, no_overload


def ordered(items: Sequence[Value], keys: Sequence[Value]) -> tuple[Value, ...]:
    """The items, sorted by their keys.

    Raises:
        EvaluationError: the keys are of different kinds, or of one without an order.
    """
    if len({kind(key) for key in keys}) > 1:
        raise EvaluationError("list elements must have the same type")

    for key in keys:
        less(key, key)  # raises for NaN, and for a kind without an order
    order = sorted(range(len(items)), key=[_order(key) for key in keys].__getitem__)
    return tuple([items[index] for index in order])


def _order(key: Value) -> Value:
    return key.nanos if isinstance(key, Duration | Timestamp) else key


def _sort(items: tuple[Value, ...]) -> tuple[Value, ...]:
    return ordered(items, items)


def _slice(items: tuple[Value, ...], begin: int, end: int) -> tuple[Value, ...]:
    if begin < 0 or end < 0:
        raise EvaluationError(f"cannot slice({begin}, {end}), negative indexes not supported")
    if begin > end:
        raise EvaluationError(f"cannot slice({begin}, {end}), start must not be after end")
    if end > len(items):
        raise EvaluationError(f"cannot slice({begin}, {end}), list is length {len(items)}")
    return items[begin:end]


def _flatten(spend: Spend, items: tuple[Value, ...], depth: int = 1) -> tuple[Value, ...]:
    if depth < 0:
        raise EvaluationError("level must be non-negative")
    flat = items
    for _ in range(depth):
        spend(len(flat))
        if not any(isinstance(item, tuple) for item in flat):
            break
        spend(sum(len(item) for item in flat if isinstance(item, tuple)))
        flat = tuple(
            [inner for item in flat for inner in (item if isinstance(item, tuple) else (item,))]
        )
    return flat


def _distinct(items: tuple[Value, ...]) -> tuple[Value, ...]:
    found: list[Value] = []
    for item in items:
        if not _contains(found, item):
            found.append(item)
    return tuple(found)


def _range(count: int) -> tuple[Value, ...]:
    if count < 0:
        raise EvaluationError(f"lists.range: {count} is negative")
    return tuple(range(count))


def _contains(among: Sequence[Value], item: Value) -> bool:
    return any(is_same(element, item) for element in among)


def _contains_all(left: tuple[Value, ...], right: tuple[Value, ...]) -> bool:
    return all(_contains(left, item) for item in right)


def _equivalent(left: tuple[Value, ...], right: tuple[Value, ...]) -> bool:
    return _contains_all(left, right) and _contains_all(right, left)


def _intersects(left: tuple[Value, ...], right: tuple[Value, ...]) -> bool:
    return any(_contains(left, item) for item in right)


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


_COMPARABLE: Final = (INT, UINT, DOUBLE, BOOL, DURATION, TIMESTAMP, STRING, BYTES)
_LIST: Final = list_of(A)


def _for_each(
    name: str, result: Type | None, implementation: Callable[..., Value]
) -> tuple[Overload, ...]:
    return tuple(
        method(name, (list_of(item),), result or item, implementation, neighbours)
        for item in _COMPARABLE
    )


def _part(items: tuple[Value, ...], begin: int, end: int) -> int:
    """The cost of a slice."""
    return 1 + max(0, min(end, len(items)) - max(begin, 0))


def _index_cost(items: tuple[Value, ...], item: Value) -> int:
    return membership(item, items)


OVERLOADS: Final = (
    method("slice", (_LIST, INT, INT), _LIST, _slice, _part),
    method("flatten", (list_of(_LIST),), _LIST, _flatten, elements, spends=True),
    method("flatten", (list_of(DYN), INT), list_of(DYN), _flatten, elements, spends=True),
    *(
        method("sort", (list_of(item),), list_of(item), _sort, ordering)
        for item in _COMPARABLE
    ),
    method("distinct", (_LIST,), _LIST, _distinct, lambda items: pairs(items, items)),
    method("reverse", (_LIST,), _LIST, lambda items: items[::-1], elements),
    function("lists.range", (INT,), list_of(INT), _range, lambda count: 1 + 3 * max(0, count)),
    function("sets.contains", (_LIST, _LIST), BOOL, _contains_all, pairs),
    function("sets.equivalent", (_LIST, _LIST), BOOL, _equivalent,
             lambda left, right: 2 * pairs(left, right)),
    function("sets.intersects", (_LIST, _LIST), BOOL, _intersects, pairs),
    *_for_each("isSorted", BOOL, _is_sorted),
    *_for_each("min", None, _least),
    *_for_each("max", None, _most),
    *(
        method("sum", (list_of(item),), item, _sum_of(item), lambda items: 1 + 2 * len(items))
        for item in (INT, UINT, DOUBLE, DURATION)
    ),
    method("indexOf", (_LIST, A), INT, _index, _index_cost),
    method("lastIndexOf", (_LIST, A), INT, _last_index, _index_cost),
)  # fmt: skip
