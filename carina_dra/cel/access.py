"""Looks up elements of maps and lists."""

from collections.abc import Callable
from typing import TypeAlias

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.values import NONE, DomainMap, Optional, Value, find, kind, no_overload, shown

_Run: TypeAlias = Callable[[list[Value]], Value]


def attribute_reader(domain: str, name: str) -> _Run:
    """`device.attributes["domain"].name`."""

    def run(frame: list[Value]) -> Value:
        try:
            return frame[0].attributes[domain][name]
        except KeyError:
            raise EvaluationError(f"no such key: {name}") from None

    return run


def attribute_finder(domain: str, name: str) -> _Run:
    """`device.attributes["domain"].?name`."""

    def run(frame: list[Value]) -> Value:
        of_domain = frame[0].attributes[domain]
        return Optional((of_domain[name],)) if name in of_domain else NONE

    return run


def capacity_reader(domain: str, name: str) -> _Run:
    """`device.capacity["domain"].name`."""

    def run(frame: list[Value]) -> Value:
        try:
            return frame[0].capacity[domain][name]
        except KeyError:
            raise EvaluationError(f"no such key: {name}") from None

    return run


def selector(operand: _Run, field: str) -> _Run:
    """`operand.field`."""
    return lambda frame: _element(operand(frame), field)


def indexer(operand: _Run, key: _Run) -> _Run:
    """`operand[key]`."""
    return lambda frame: _element(operand(frame), key(frame))


def tester(operand: _Run, field: str) -> _Run:
    """`has(operand.field)`."""

    def run(frame: list[Value]) -> Value:
        of = operand(frame)
        if isinstance(of, Optional):
            return any(_found(value, field) for value in of.values)
        return bool(_found(of, field))

    return run


def optional_selector(operand: _Run, field: str) -> _Run:
    """`operand.?field`."""
    return lambda frame: _maybe(operand(frame), field)


def optional_indexer(operand: _Run, key: _Run) -> _Run:
    """`operand[?key]`."""
    return lambda frame: _maybe(operand(frame), key(frame))


def _element(operand: Value, key: Value) -> Value:
    if isinstance(operand, Optional):
        return _maybe(operand, key)
    found = _found(operand, key)
    if found:
        return found[0]
    if isinstance(operand, tuple):
        raise EvaluationError(f"index out of bounds: {key}")
    raise EvaluationError(f"no such key: {shown(key)}")


def _maybe(operand: Value, key: Value) -> Value:
    if isinstance(operand, Optional):
        return _maybe(operand.values[0], key) if operand.values else NONE
    found = _found(operand, key)
    return Optional(found) if found else NONE


def _found(operand: Value, key: Value) -> tuple[Value, ...]:
    """The element in a tuple; empty if there is none.

    Raises:
        EvaluationError: the operand has no elements, or the key is of an unsupported type.
    """
    if isinstance(operand, DomainMap) and isinstance(key, str):
        return (operand[key],)
    if isinstance(operand, dict):
        return find(operand, key)
    if isinstance(operand, tuple):
        return _at(operand, key)
    raise no_overload()


def _at(operand: tuple[Value, ...], key: Value) -> tuple[Value, ...]:
    is_index = key.is_integer() if isinstance(key, float) else kind(key) in ("int", "uint")
    if not is_index:
        raise EvaluationError(f"unsupported index type '{kind(key)}' in list")
    index = int(key)
    return (operand[index],) if 0 <= index < len(operand) else ()
