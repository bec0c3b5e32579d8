"""Between JSON and the frozen types of this package.

The types say all there is to know: a field's JSON name is its own in camelCase, or what
`json_name` gives it; a field with a default may be absent, and is left out when it is empty, as the
API does. How a class is read and written is worked out once, into closures.

**Nothing is lost**: members that a type does not know are kept in its `unknown`, and written again.
So an object of a newer API server survives being read, changed and written.
"""

import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, is_dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import wraps
from typing import (
    Any,
    ClassVar,
    Protocol,
    TypeVar,
    Union,
    cast,
    get_args,
    get_origin,
    get_type_hints,
)

from carina_dra.quantity import Quantity, QuantityError

JsonObject = Mapping[str, Any]
"""A JSON object that is passed on as it is."""

T = TypeVar("T")
F = TypeVar("F")
_EMPTY: JsonObject = types.MappingProxyType({})
_TIME = "%Y-%m-%dT%H:%M:%SZ"


class DecodeError(ValueError):
    """JSON that is not the object it should be: names the object, the field, what was found."""


@dataclass(frozen=True, slots=True)
class Struct:
    """A JSON object of the API. Subclasses say which members they know."""

    unknown: JsonObject = field(default_factory=lambda: _EMPTY, repr=False, kw_only=True)
    """The members that the type does not know."""


@dataclass(frozen=True, slots=True)
class Member(Struct):
    """One alternative of a union of which the API allows exactly one.

    `json_key` is the member of the JSON object that chooses it. The alternative's value is its one
    field; an alternative without one is a plain `true`. An empty key is the alternative for what
    only a newer API knows.
    """

    json_key: ClassVar[str]


class Inline(Protocol):
    """Reads one value of ours from several members of the JSON object, and writes it there."""

    keys: tuple[str, ...]

    def decode(self, present: dict[str, Any]) -> object:
        """Gives the value; `present` are the members of `keys` that are there."""

    def encode(self, value: Any) -> dict[str, Any]:
        """Gives the members."""


def json_name(name: str) -> dict[str, Any]:
    """Field metadata: its JSON name, where that is not the camelCase of its own."""
    return {"json": name}


def inline(codec: Inline) -> dict[str, Any]:
    """Field metadata: the value is spread over members of the JSON object."""
    return {"inline": codec}


def decode(cls: type[T], body: Mapping[str, Any]) -> T:
    """Reads an object of the API.

    Raises:
        DecodeError: naming kind, namespace and name, the field, what is there and what should be.
    """
    try:
        return cast("T", _decoder(cls)(body))
    except BadValueError as error:
        raise DecodeError(f"{_describe(cls, body)}: {error}") from None


def encode(value: object) -> dict[str, Any]:
    """Gives an object of the API as JSON. A top-level object says its apiVersion and kind."""
    return cast("dict[str, Any]", _encoder(type(value))(value))


class BadValueError(Exception):
    """Something is not what it should be; the path to it grows on the way up."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.path: list[str] = []

    def __str__(self) -> str:
        path = "".join(reversed(self.path)).lstrip(".")
        return f"{path}: {self.problem}" if path else self.problem


def _describe(cls: type, body: object) -> str:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    names = metadata if isinstance(metadata, Mapping) else {}
    key = "/".join(str(names[part]) for part in ("namespace", "name") if names.get(part))
    return f"{cls.__name__} {key}".rstrip()


def _expected(what: str, found: object) -> BadValueError:
    return BadValueError(f"is {found!r:.80}, not {what}")


def _once(work_out: Callable[[Any], F]) -> Callable[[Any], F]:
    """Works out each type once. (functools.cache does not take a type for hashable.)"""
    known: dict[object, F] = {}

    @wraps(work_out)
    def remembered(kind: object) -> F:
        if kind not in known:
            known[kind] = work_out(kind)
        return known[kind]

    return remembered


# How values are read ---------------------------------------------------------------------------

_Decoder = Callable[[Any], Any]


def _exactly(kind: type, what: str) -> _Decoder:
    def decoder(value: object) -> object:
        if type(value) is not kind:
            raise _expected(what, value)
        return value

    return decoder


def _decode_quantity(value: object) -> Quantity:
    try:
        return Quantity.parse(value if isinstance(value, str) else str(value))
    except QuantityError as error:
        raise BadValueError(str(error)) from None


def _decode_time(value: object) -> datetime:
    try:
        return datetime.fromisoformat(cast("str", value)).astimezone(UTC)
    except (TypeError, ValueError):
        raise _expected("a time such as 2026-01-31T12:00:00Z", value) from None


_LEAVES: dict[object, _Decoder] = {
    str: _exactly(str, "a string"),
    int: _exactly(int, "an integer"),
    bool: _exactly(bool, "true or false"),
    JsonObject: _exactly(dict, "an object"),
    Quantity: _decode_quantity,
    datetime: _decode_time,
    Any: lambda value: value,
}


@_once
def _decoder(kind: Any) -> _Decoder:
    """Gives what reads a value of a type."""
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return _list_decoder(_decoder(arguments[0]))
    if origin is not None and issubclass(_class_of(origin), Mapping):
        return _map_decoder(_decoder(arguments[1]))
    if origin in (Union, types.UnionType):
        present = [argument for argument in arguments if argument is not types.NoneType]
        return _decoder(present[0]) if len(present) == 1 else _union_decoder(OneOf(*present))
    if issubclass(kind, Enum):
        return _enum_decoder(kind)
    if is_dataclass(kind):
        return _struct_decoder(cast("type", kind))
    raise TypeError(f"no way to read a {kind}")


def _class_of(origin: object) -> type:
    return origin if isinstance(origin, type) else object


def _list_decoder(item: _Decoder) -> _Decoder:
    def decoder(value: object) -> tuple[object, ...]:
        if type(value) is not list:
            raise _expected("a list", value)
        index, made = 0, []
        try:
            for index, each in enumerate(value):  # noqa: B007 - for the message
                made.append(item(each))
        except BadValueError as error:
            error.path.append(f"[{index}]")
            raise
        return tuple(made)

    return decoder


def _map_decoder(item: _Decoder) -> _Decoder:
    def decoder(value: object) -> dict[str, object]:
        if type(value) is not dict:
            raise _expected("an object", value)
        key, made = "", {}
        try:
            for key, each in value.items():
                made[key] = item(each)
        except BadValueError as error:
            error.path.append(f"[{key}]")
            raise
        return made

    return decoder


def _enum_decoder(kind: type[Enum]) -> _Decoder:
    members = {member.value: member for member in kind}
    allowed = "one of " + ", ".join(sorted(members))

    def decoder(value: object) -> Enum:
        try:
            return members[value]
        except (KeyError, TypeError):
            raise _expected(allowed, value) from None

    return decoder


def _union_decoder(union: "OneOf") -> _Decoder:
    """Reads a JSON object that is one alternative of a union and nothing else."""

    def decoder(value: object) -> object:
        if type(value) is not dict:
            raise _expected("an object", value)
        return union.decode(value)

    return decoder


def _struct_decoder(cls: type) -> _Decoder:  # noqa: C901 - one loop over members, for speed
    known: dict[str, tuple[str, _Decoder]] = {}
    inlined: list[tuple[str, Inline]] = []
    required: set[str] = set()
    hints = _hints(cls)
    for each in _members(cls):
        if "inline" in each.metadata:
            inlined.append((each.name, each.metadata["inline"]))
            continue
        known[_json_name(each)] = (each.name, _decoder(hints[each.name]))
        if each.default is MISSING and each.default_factory is MISSING:
            required.add(each.name)
    spread = {key: name for name, codec in inlined for key in codec.keys}
    header = _header(cls)

    def decoder(value: object) -> object:  # noqa: C901 - as above
        if type(value) is not dict:
            raise _expected("an object", value)
        made: dict[str, Any] = {}
        parts: dict[str, dict[str, Any]] = {}
        unknown: dict[str, Any] = {}
        for key, found in value.items():
            if key in known:
                if found is None:
                    continue
                name, read = known[key]
                try:
                    made[name] = read(found)
                except BadValueError as error:
                    error.path.append(f".{key}")
                    raise
            elif key in spread:
                if found is not None:
                    parts.setdefault(spread[key], {})[key] = found
            elif key not in header:
                unknown[key] = found
            elif found != header[key]:
                raise BadValueError(f"{key} is {found!r}, not {header[key]}")
        for name, codec in inlined:
            made[name] = codec.decode(parts.get(name, {}))
        if not required <= made.keys():
            raise BadValueError("lacks " + ", ".join(sorted(required - made.keys())))
        return cls(**made, unknown=unknown) if unknown else cls(**made)

    return decoder


# How values are written ------------------------------------------------------------------------

_Encoder = Callable[[Any], Any]


@_once
def _encoder(kind: type) -> _Encoder:
    """Gives what writes a value of a class."""
    if kind in (str, int, bool, type(None)):
        return lambda value: value
    if kind is Quantity:
        return str
    if kind is datetime:
        return lambda value: value.astimezone(UTC).strftime(_TIME)
    if kind is tuple:
        return lambda value: [_encoder(type(each))(each) for each in value]
    if issubclass(kind, Mapping):
        return lambda value: {key: _encoder(type(each))(each) for key, each in value.items()}
    if issubclass(kind, Enum):
        return lambda value: value.value
    if issubclass(kind, Member):
        union = OneOf(kind)
        return union.encode
    if is_dataclass(kind):
        return _struct_encoder(kind)
    return lambda value: value  # a JSON value that is passed on


def _struct_encoder(cls: type) -> _Encoder:
    plain: list[tuple[str, str, object, bool]] = []
    inlined: list[tuple[str, Inline]] = []
    for each in _members(cls):
        if "inline" in each.metadata:
            inlined.append((each.name, each.metadata["inline"]))
            continue
        optional = each.default is not MISSING or each.default_factory is not MISSING
        default = each.default_factory() if each.default_factory is not MISSING else each.default
        plain.append((each.name, _json_name(each), default, optional))
    header = _header(cls)

    def encoder(value: Any) -> dict[str, Any]:
        made = dict(header)
        for name, key, default, optional in plain:
            member = getattr(value, name)
            if not (optional and not default and member == default):
                made[key] = _encoder(type(member))(member)
        for name, codec in inlined:
            made |= codec.encode(getattr(value, name))
        return {**made, **value.unknown}

    return encoder


# Unions ----------------------------------------------------------------------------------------


class OneOf:
    """An `Inline` for a union of `Member` classes, of which exactly one is to be there."""

    def __init__(self, *members: type[Member], optional: bool = False) -> None:
        """`optional`: none may be there too, which is None."""
        self._members = {member.json_key: member for member in members if member.json_key}
        self._fallback = next((member for member in members if not member.json_key), None)
        self._optional = optional
        self.keys = tuple(self._members)
        self._value_fields: dict[type[Member], str | None] = {}
        for member in members:
            names = [each.name for each in _members(member)]
            self._value_fields[member] = names[0] if names else None

    def decode(self, present: dict[str, Any]) -> object:
        """Gives the member that is there."""
        chosen = [key for key in present if key in self._members]
        if len(chosen) != 1:
            if not chosen and self._fallback is not None:
                return self._fallback(unknown=present)
            if not chosen and self._optional:
                return None
            found = " and ".join(chosen) or "none"
            raise BadValueError(f"has {found}, not exactly one of {', '.join(self.keys)}")
        key = chosen[0]
        member = self._members[key]
        name = self._value_fields[member]
        unknown = {each: value for each, value in present.items() if each != key}
        kept = {"unknown": unknown} if unknown else {}
        try:
            if name is None:
                if present[key] is not True:
                    raise _expected("true", present[key])
                return member(**kept)
            return member(**{name: _decoder(_hints(member)[name])(present[key])}, **kept)
        except BadValueError as error:
            error.path.append(f".{key}")
            raise

    def encode(self, value: Any) -> dict[str, Any]:
        """Gives its JSON member."""
        if value is None:
            return {}
        if type(value) is self._fallback:
            return dict(value.unknown)
        name = self._value_fields[type(value)]
        content = True if name is None else getattr(value, name)
        return {value.json_key: _encoder(type(content))(content), **value.unknown}


# What the types say ----------------------------------------------------------------------------


@_once
def _hints(cls: type) -> dict[str, Any]:
    return get_type_hints(cls)


def _members(cls: type) -> Sequence[Field[Any]]:
    return [each for each in fields(cls) if each.name != "unknown"]


def _json_name(each: Field[Any]) -> str:
    given = each.metadata.get("json")
    return given or re.sub(r"_([a-z])", lambda m: m.group(1).upper(), each.name)


def _header(cls: type) -> dict[str, str]:
    """What a top-level object says of itself; nothing for the others."""
    version, kind = getattr(cls, "API_VERSION", None), getattr(cls, "KIND", None)
    return {"apiVersion": version, "kind": kind} if version and kind else {}
