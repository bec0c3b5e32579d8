"""From JSON to the frozen types of this package.

How a class is read is worked out once, into closures, since a controller reads tens of thousands of
devices. `null` is what is absent. What contradicts the API is an error; what only a newer API can
have written is kept (`schema.py`).
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from enum import Enum
from typing import Any, Final, TypeVar, cast, get_args, get_origin

from carina_dra.quantity import Quantity, QuantityError
from carina_dra.resource.schema import (
    JsonObject,
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

T = TypeVar("T")
Decoder = Callable[[Any], Any]

_RFC3339: Final = re.compile(
    r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[+-]\d\d:\d\d)", re.ASCII | re.IGNORECASE
)


class DecodeError(ValueError):
    """JSON that is not the object it should be."""

    def __init__(self, kind: str, key: str, path: str, problem: str) -> None:
        where = f"{kind} {key}".rstrip()
        super().__init__(": ".join(part for part in (where, path, problem) if part))
        self.kind = kind
        """Which kind of object it should be."""
        self.key = key
        """`namespace/name` as far as it can be read."""
        self.path = path
        """The field, such as `spec.devices[0].name`; empty for the object itself."""
        self.problem = problem
        """What is there, and what should be."""


class BadValueError(Exception):
    """Something is not what it should be; the path to it grows on the way up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []
        """The innermost first."""

    @property
    def path(self) -> str:
        """Where it is."""
        return "".join(reversed(self.steps)).lstrip(".")


def decode(cls: type[T], body: JsonObject) -> T:
    """Reads an object of the API, or part of one.

    Raises:
        DecodeError: naming kind, namespace and name, the field, what is there and what should be.
    """
    try:
        return cast("T", decoder(cls)(body))
    except BadValueError as error:
        raise DecodeError(cls.__name__, _key(body), error.path, error.problem) from None


def _key(body: object) -> str:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    names = metadata if isinstance(metadata, Mapping) else {}
    return "/".join(str(names[part]) for part in ("namespace", "name") if names.get(part))


def _expected(what: str, found: object) -> BadValueError:
    return BadValueError(f"is {found!r:.80}, not {what}")


# Values ----------------------------------------------------------------------------------------


@once
def decoder(kind: Any) -> Decoder:
    """Gives what reads values of a type; it raises BadValueError."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _list_decoder(decoder(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _map_decoder(decoder(arguments[1]))
    match alternatives(kind):
        case (only,) if only is not kind:
            return decoder(only)
        case (known, unrecognized) if unrecognized is Unrecognized:
            return _enum_decoder(known, is_open=True)
        case (_, _, *_) if union_members(kind):
            return _union_decoder(kind)
        case _:
            pass
    if isinstance(kind, type) and issubclass(kind, Enum):
        return _enum_decoder(kind, is_open=False)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return _object_decoder(kind) if header(kind) else _struct_decoder(kind)
    raise TypeError(f"no way to read a {kind}")


def _exactly(kind: type, what: str) -> Decoder:
    def read(value: object) -> object:
        if type(value) is not kind:
            raise _expected(what, value)
        return value

    return read


def _quantity(value: object) -> Quantity:
    """JSON numbers are quantities too."""
    try:
        return Quantity.parse(value if type(value) is str else str(value))
    except QuantityError as error:
        raise BadValueError(str(error)) from None


def _time(value: object) -> datetime:
    """A meta/v1 Time: RFC 3339. Fractions of a second are read, and not written."""
    if type(value) is str and _RFC3339.fullmatch(value):
        try:
            return datetime.fromisoformat(value.upper()).astimezone(UTC)
        except (ValueError, OverflowError):
            pass
    raise _expected("a time such as 2026-01-31T12:00:00Z", value)


_LEAVES: Final[Mapping[object, Decoder]] = {
    str: _exactly(str, "a string"),
    int: _exactly(int, "an integer"),
    bool: _exactly(bool, "true or false"),
    JsonObject: _exactly(dict, "an object"),
    Quantity: _quantity,
    datetime: _time,
}


def _list_decoder(item: Decoder) -> Decoder:
    def read(value: object) -> tuple[object, ...]:
        if type(value) is not list:
            raise _expected("a list", value)
        made: list[object] = []
        try:
            for each in value:
                made.append(item(each))  # noqa: PERF401 - its length is the path of an error
        except BadValueError as error:
            error.steps.append(f"[{len(made)}]")
            raise
        return tuple(made)

    return read


def _map_decoder(item: Decoder) -> Decoder:
    def read(value: object) -> dict[str, object]:
        if type(value) is not dict:
            raise _expected("an object", value)
        key, made = "", {}
        try:
            for key, each in value.items():
                made[key] = item(each)
        except BadValueError as error:
            error.steps.append(f"[{key}]")
            raise
        return made

    return read


def _enum_decoder(kind: type[Enum], *, is_open: bool) -> Decoder:
    words = {member.value: member for member in kind}
    allowed = "one of " + ", ".join(words)

    def read(value: object) -> Enum | Unrecognized:
        if type(value) is not str:
            raise _expected(allowed, value)
        if value in words:
            return words[value]
        if is_open:
            return Unrecognized(value)
        raise _expected(allowed, value)

    return read


# Objects ---------------------------------------------------------------------------------------


def _object_decoder(cls: type[Struct]) -> Decoder:
    """Reads a top-level object. One of a list says neither apiVersion nor kind."""
    read = _struct_decoder(cls)
    own = header(cls)

    def read_object(value: object) -> object:
        if type(value) is not dict:
            raise _expected("an object", value)
        for key, said in own.items():
            if value.get(key, said) != said:
                raise BadValueError(f"{key} is {value[key]!r:.80}, not {said}")
        return read({key: found for key, found in value.items() if key not in own})

    return read_object


def _struct_decoder(cls: type[Struct]) -> Decoder:
    known = known_members(cls)
    members = [each for each in known if isinstance(each, KnownMember)]
    plain = {each.name: (each.field, decoder(each.kind)) for each in members}
    required = {each.field: each.name for each in members if each.required}
    joins = [(each.field, _join(each)) for each in known if not isinstance(each, KnownMember)]

    def read(value: object) -> object:
        if type(value) is not dict:
            raise _expected("an object", value)
        made: dict[str, Any] = {}
        others: dict[str, Any] = {}
        key = ""
        try:
            for key, found in value.items():
                if key not in plain:
                    others[key] = found
                elif found is not None:
                    name, read_member = plain[key]
                    made[name] = read_member(found)
        except BadValueError as error:
            error.steps.append(f".{key}")
            raise
        if not required.keys() <= made.keys():
            absent = [name for each, name in required.items() if each not in made]
            raise BadValueError("lacks " + ", ".join(absent))
        for name, join in joins:
            made[name] = join(others)
        return cls(**made, unknown=others) if others else cls(**made)

    return read


def _join(known: KnownUnion | KnownSpread) -> Callable[[dict[str, Any]], object]:
    """Gives what takes a field's members out of those of its object, and makes its value."""
    match known:
        case KnownUnion(alternatives=members):
            readers = {key: _member_decoder(member) for key, member in members.items()}
            return lambda others: _one_of(_take(others, readers))
        case KnownSpread(how=how):
            readers = {key: _step(key, decoder(kind)) for key, kind in how.members.items()}
            return lambda others: how.join(_take(others, readers))


def _take(others: dict[str, Any], readers: Mapping[str, Decoder]) -> dict[str, Any]:
    found = {key: others.pop(key) for key in readers if key in others}
    return {key: readers[key](value) for key, value in found.items() if value is not None}


def _one_of(present: Mapping[str, Member]) -> Member | None:
    if len(present) > 1:
        raise BadValueError(f"has {' and '.join(present)}, of which only one may be there")
    return next(iter(present.values()), None)


def _step(key: str, read: Decoder) -> Decoder:
    """Reads a member, and knows its name if that fails."""

    def read_member(value: object) -> object:
        try:
            return read(value)
        except BadValueError as error:
            error.steps.append(f".{key}")
            raise

    return read_member


def _member_decoder(member: type[Member]) -> Decoder:
    """Reads the member of an object that chooses an alternative, as that alternative."""
    match known_members(member):
        case (KnownMember(kind=kind),):
            read, make = decoder(kind), cast("Callable[[Any], Member]", member)
        case _:
            read, make = _true, lambda _: member()
    return _step(member.json_key, lambda value: make(read(value)))


def _true(value: object) -> None:
    if value is not True:
        raise _expected("true", value)


def _union_decoder(kind: Any) -> Decoder:
    """Reads an object that is one alternative of a union and nothing else.

    The one type of the union that is no Member is for what only a newer API knows.
    """
    readers = {key: _member_decoder(member) for key, member in union_members(kind).items()}
    (newer,) = (each for each in alternatives(kind) if not issubclass(each, Member))

    def read(value: object) -> object:
        if type(value) is not dict:
            raise _expected("an object", value)
        if len(value) == 1:  # nearly always
            ((key, found),) = value.items()
            if key in readers and found is not None:
                return readers[key](found)
        unknown = dict(value)
        known = _one_of(_take(unknown, readers))
        return newer(unknown=unknown) if known is None else replace(known, unknown=unknown)

    return read
