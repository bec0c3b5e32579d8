"""Codecs of single values, lists, maps and enumerations."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final

from carina_dra.quantity import Quantity, QuantityError
from carina_dra.resource.errors import BadValueError, expected
from carina_dra.resource.schema import JsonObject, Unrecognized

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)
_INT64: Final = range(-(2**63), 2**63)


@dataclass(frozen=True, slots=True)
class Codec:
    """How the values of one type are read from JSON, and written to it."""

    read: Callable[[Any], Any]
    """Raises BadValueError."""
    write: Callable[[Any], Any]


def list_of(item: Codec) -> Codec:
    """The codec of a tuple, which is a list in JSON."""
    read_item, write_item = item.read, item.write

    def read(value: object) -> tuple[object, ...]:
        if type(value) is not list:
            raise expected("a list", value)
        items: list[object] = []
        try:
            for found in value:
                items.append(read_item(found))  # noqa: PERF401 - its length is the path of an error
        except BadValueError as error:
            error.steps.append(f"[{len(items)}]")
            raise
        return tuple(items)

    return Codec(read, lambda values: [write_item(value) for value in values])


def fixed_list_of(items: Sequence[Codec]) -> Codec:
    """The codec of a tuple with a type for each of its items, which is a list in JSON."""

    def read(value: object) -> tuple[object, ...]:
        if type(value) is not list or len(value) != len(items):
            raise expected(f"a list of {len(items)} values", value)
        made: list[object] = []
        try:
            for item, found in zip(items, value, strict=True):
                made.append(item.read(found))
        except BadValueError as error:
            error.steps.append(f"[{len(made)}]")
            raise
        return tuple(made)

    return Codec(
        read,
        lambda values: [item.write(value) for item, value in zip(items, values, strict=True)],
    )


def set_of(item: Codec) -> Codec:
    """The codec of a frozenset, which is a list in JSON, sorted when it is written."""
    values = list_of(item)
    return Codec(
        lambda value: frozenset(values.read(value)),
        lambda value: sorted(item.write(found) for found in value),
    )


def map_of(item: Codec, keys: Codec | None = None) -> Codec:
    """The codec of a mapping. Without a codec for its keys they are taken as they are."""
    if keys is not None:
        return _map_with_keys(keys, item)
    read_item, write_item = item.read, item.write

    def read(value: object) -> dict[str, object]:
        if type(value) is not dict:
            raise expected("an object", value)
        key, items = "", {}
        try:
            for key, found in value.items():
                items[key] = read_item(found)
        except BadValueError as error:
            error.steps.append(f"[{key}]")
            raise
        return items

    return Codec(read, lambda values: {key: write_item(value) for key, value in values.items()})


def _map_with_keys(keys: Codec, item: Codec) -> Codec:
    read_key, read_item = keys.read, item.read

    def read(value: object) -> dict[object, object]:
        if type(value) is not dict:
            raise expected("an object", value)
        key, items = None, {}
        try:
            for key, found in value.items():
                known = read_key(key)
                items[known] = read_item(found)
        except BadValueError as error:
            error.steps.append(f"[{key}]")
            raise
        return items

    return Codec(
        read, lambda values: {keys.write(key): item.write(value) for key, value in values.items()}
    )


def closed_enumeration(kind: type[Enum]) -> Codec:
    """The codec of an enumeration to which no API version adds a word."""
    words = {member.value: member for member in kind}
    allowed = "one of " + ", ".join(words)

    def read(value: object) -> Enum:
        if type(value) is not str or value not in words:
            raise expected(allowed, value)
        return words[value]

    return Codec(read, lambda value: value.value)


def open_enumeration(kind: type[Enum]) -> Codec:
    """The codec of an enumeration to which a newer API may add words: they are Unrecognized."""
    words = {member.value: member for member in kind}
    allowed = "one of " + ", ".join(words)

    def read(value: object) -> Enum | Unrecognized:
        if type(value) is not str:
            raise expected(allowed, value)
        return words[value] if value in words else Unrecognized(value)

    def write(value: Enum | Unrecognized) -> object:
        return value.word if isinstance(value, Unrecognized) else value.value

    return Codec(read, write)


def at(step: str, read: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Returns a reader of a part of a value; its errors get the place of the part."""

    def read_part(value: object) -> object:
        try:
            return read(value)
        except BadValueError as error:
            error.steps.append(step)
            raise

    return read_part


def true_reader(make: Callable[[], object]) -> Callable[[Any], Any]:
    """Reads a member without content, which is a plain `true` in JSON."""

    def read(value: object) -> object:
        if value is not True:
            raise expected("true", value)
        return make()

    return read


def _as_it_is(kind: type, what: str) -> Codec:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise expected(what, value)
        return value

    return Codec(read, lambda value: value)


def _read_quantity(value: object) -> Quantity:
    """JSON numbers are quantities too."""
    if (type(value) is int and value in _INT64) or type(value) is float:
        value = str(value)
    if type(value) is not str:
        raise expected("a quantity", value)
    try:
        return Quantity.parse(value)
    except QuantityError as error:
        raise BadValueError(str(error)) from None


def _read_integer(value: object) -> int:
    if type(value) is not int:
        raise expected("an integer", value)
    if value not in _INT64:
        raise expected("an integer of 64 bits", value)
    return value


def _read_time(value: object) -> datetime:
    """A meta/v1 Time: RFC 3339. Fractions of a second are read, and not written."""
    if type(value) is str and _RFC3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise expected("a time such as 2026-01-31T12:00:00Z", value)


def _write_time(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


_DEEPEST: Final = 200
"""Levels of JSON whose content is free. Much more could neither be compared nor written."""


def _read_json_object(value: object) -> object:
    """An object whose content is free; what is nested too deeply in it is a string that says so."""
    if type(value) is not dict:
        raise expected("an object", value)
    return _within(value, _DEEPEST)


def _within(value: object, levels: int) -> object:
    match value:
        case dict() | list() if levels == 0:
            return "nested too deeply to be read"
        case dict():
            return {key: _within(each, levels - 1) for key, each in value.items()}
        case list():
            return [_within(each, levels - 1) for each in value]
        case _:
            return value


LEAVES: Final[Mapping[object, Codec]] = {
    str: _as_it_is(str, "a string"),
    int: Codec(_read_integer, lambda value: value),
    bool: _as_it_is(bool, "true or false"),
    JsonObject: Codec(_read_json_object, lambda value: value),
    Quantity: Codec(_read_quantity, str),
    datetime: Codec(_read_time, _write_time),
}
