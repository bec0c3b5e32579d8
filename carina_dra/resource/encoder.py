"""From the frozen types of this package to JSON, as the API server writes it.

A field that may be absent and is empty is left out; one that the API server would set is not, nor
is an object that is always there (`status: {}`). What was read and not known is written as it was.
"""

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, cast, get_args, get_origin

from carina_dra.quantity import Quantity
from carina_dra.resource.schema import (
    JsonObject,
    Known,
    KnownMember,
    KnownSpread,
    KnownUnion,
    Member,
    Struct,
    Unrecognized,
    alternatives,
    header,
    known_members,
    once,
    union_members,
)

Encoder = Callable[[Any], Any]


def encode(value: Struct) -> dict[str, Any]:
    """Gives an object of the API, or part of one, as JSON.

    A top-level object says its apiVersion and kind.
    """
    return cast("dict[str, Any]", encoder(type(value))(value))


@once
def encoder(kind: Any) -> Encoder:
    """Gives what writes values of a type."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _list_encoder(encoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _map_encoder(encoder(arguments[1]))
    match alternatives(kind):
        case (only,) if only is not kind:
            return encoder(only)
        case (_, unrecognized) if unrecognized is Unrecognized:
            return lambda value: value.word if type(value) is Unrecognized else value.value
        case (_, _, *_) if union_members(kind):
            return lambda value: encoder(type(value))(value)
        case _:
            pass
    if isinstance(kind, type) and issubclass(kind, Enum):
        return lambda value: value.value
    if isinstance(kind, type) and issubclass(kind, Member):
        return _member_encoder(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _struct_encoder(kind)
    raise TypeError(f"no way to write a {kind}")


def _time(value: datetime) -> str:
    return value.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


_LEAVES: Final[Mapping[object, Encoder]] = {
    str: lambda value: value,
    int: lambda value: value,
    bool: lambda value: value,
    JsonObject: lambda value: value,
    Quantity: str,
    datetime: _time,
}


def _list_encoder(item: Encoder) -> Encoder:
    return lambda value: [item(each) for each in value]


def _map_encoder(item: Encoder) -> Encoder:
    return lambda value: {key: item(each) for key, each in value.items()}


def _struct_encoder(cls: type[Struct]) -> Encoder:
    own_header = header(cls)
    writers = [(each.field, _writer(each)) for each in known_members(cls)]

    def write(value: Any) -> dict[str, Any]:
        made: dict[str, Any] = dict(own_header)
        for name, add in writers:
            add(made, getattr(value, name))
        made.update(value.unknown)
        return made

    return write


def _writer(known: Known) -> Callable[[dict[str, Any], Any], None]:
    """Gives what adds a field's members to an object."""
    match known:
        case KnownMember(name=name, kind=kind, required=required, default=default):
            write = encoder(kind)
            always = required or bool(default)

            def add(made: dict[str, Any], value: object) -> None:
                if always or value != default:
                    made[name] = write(value)

            return add
        case KnownUnion():

            def add_union(made: dict[str, Any], value: Member | None) -> None:
                if value is not None:
                    made.update(encoder(type(value))(value))

            return add_union
        case KnownSpread(how=how):
            writers = {key: encoder(kind) for key, kind in how.members.items()}

            def add_several(made: dict[str, Any], value: object) -> None:
                for key, part in how.split(value).items():
                    made[key] = writers[key](part)

            return add_several


def _member_encoder(member: type[Member]) -> Encoder:
    key = member.json_key
    match known_members(member):
        case (KnownMember(field=name, kind=kind),):
            write = encoder(kind)
            return lambda value: {key: write(getattr(value, name)), **value.unknown}
        case _:
            return lambda value: {key: True, **value.unknown}
