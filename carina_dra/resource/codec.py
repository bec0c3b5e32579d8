"""The codec of every type of this package: from JSON to frozen values, and back.

A codec is built once per type, as closures, since a controller reads tens of thousands of devices.
Reading and writing are built together from the same `known_members`.

Reading: `null` means absent. What contradicts the API is an error; what only a newer API can have
written is kept (`schema.py`), except in strict reading, where it is an error too. Writing: an
optional field that has its default is left out, unless the API server itself always writes it.
Members that were unknown are written as they were read.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, TypeAlias, TypeVar, assert_never, cast

from carina_dra.resource.dialect import Dialect, no_codec
from carina_dra.resource.errors import BadValueError, DecodeError, expected, not_a_field, shown
from carina_dra.resource.schema import (
    JsonObject,
    KnownMember,
    KnownSpread,
    KnownUnion,
    Spread,
    Struct,
    UnionMember,
    Unrecognized,
    alternatives,
    header,
    known_members,
    union_members,
)
from carina_dra.resource.sharing import shared
from carina_dra.resource.value_codec import (
    LEAVES,
    Codec,
    at,
    closed_enumeration,
    open_enumeration,
    true_reader,
)

T = TypeVar("T")

_Read: TypeAlias = Callable[[Any], Any]
_Take: TypeAlias = Callable[[dict[str, Any]], Any]
_Add: TypeAlias = Callable[[dict[str, Any], Any], None]
_Check: TypeAlias = Callable[[Mapping[str, Any]], None]


def decode(cls: type[T], body: JsonObject, *, strict: bool = False) -> T:
    """Reads an object of the API, or part of one.

    strict: for objects that people write. A member that the type does not know is an error, as is a
        word that an enumeration does not know and a value that another one makes meaningless. The
        content of opaque parameters is free.

    Raises:
        DecodeError: it names the object's kind, namespace and name, the field, the value that was
            found and what was expected.
    """
    try:
        return cast("T", codec(cls, strict=strict).read(body))
    except BadValueError as error:
        raise DecodeError(cls.__name__, _key(body), error.path, error.problem) from None
    except (ValueError, RecursionError) as error:
        # Python's own limits, such as that of 4,300 digits.
        raise DecodeError(cls.__name__, _key(body), "", f"cannot be read: {error}") from None


def encode(value: Struct) -> dict[str, Any]:
    """Writes an object of the API, or part of one, as JSON.

    A top-level object gets its apiVersion and kind.
    """
    return cast("dict[str, Any]", codec(type(value)).write(value))


def _key(body: object) -> str:
    metadata = body.get("metadata") if isinstance(body, Mapping) else None
    names = metadata if isinstance(metadata, Mapping) else {}
    parts = (names.get("namespace"), names.get("name"))
    return "/".join(part for part in parts if part and isinstance(part, str))


def codec(kind: Any, *, strict: bool = False) -> Codec:
    """The codec of a type, as fields are annotated with it; `strict` is that of `decode`."""
    return (_STRICT if strict else _TOLERANT).codec(kind)


def _of_union(kind: Any, kinds: Sequence[Any], *, strict: bool) -> Codec:
    match kinds:
        case (known, unrecognized) if unrecognized is Unrecognized:
            return closed_enumeration(known) if strict else open_enumeration(known)
        case _ if union_members(kind):
            return shared(_union(kind, strict=strict))
        case _:
            raise no_codec(kind)


def _of_class(kind: Any, *, strict: bool) -> Codec:
    if not issubclass(kind, Struct) or issubclass(kind, UnionMember):
        raise no_codec(kind)  # a Member is read and written by its object
    of_kind = _object(kind, strict=strict) if header(kind) else _struct(kind, strict=strict)
    return shared(of_kind) if kind.SHARED else of_kind


_TOLERANT: Final = Dialect(
    LEAVES,
    of_class=lambda kind: _of_class(kind, strict=False),
    of_union=lambda kind, kinds: _of_union(kind, kinds, strict=False),
)
_STRICT: Final = Dialect(
    LEAVES,
    of_class=lambda kind: _of_class(kind, strict=True),
    of_union=lambda kind, kinds: _of_union(kind, kinds, strict=True),
)


# Objects ---------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _MembersCodec:
    """How a field that is several members of its object is read and written."""

    names: Sequence[str]
    """Those of the members."""
    take: _Take
    """Takes the field's members out of those of its object, and makes its value."""
    add: _Add
    """Adds the members of a value to those of its object."""


def _object(cls: Any, *, strict: bool) -> Codec:
    """A top-level object. In a list it has neither apiVersion nor kind."""
    struct = _struct(cls, strict=strict)
    read_struct, write_struct = struct.read, struct.write
    own = header(cls)

    def read(value: object) -> object:
        if type(value) is not dict:
            raise expected("an object", value)
        for key, word in own.items():
            if value.get(key, word) != word:
                raise BadValueError(f"{key} is {shown(value[key])}, not {word}")
        return read_struct({key: found for key, found in value.items() if key not in own})

    return Codec(read, lambda value: {**own, **write_struct(value)})


def _struct(cls: Any, *, strict: bool) -> Codec:
    readers: dict[str, tuple[str, _Read]] = {}
    required: dict[str, str] = {}
    takers: list[tuple[str, _Take]] = []
    adders: list[tuple[str, _Add]] = []
    names: list[str] = []
    for known in known_members(cls):
        match known:
            case KnownMember(field=field, name=name, kind=kind):
                member = codec(kind, strict=strict)
                readers[name] = (field, member.read)
                adders.append((field, _adder(known, member.write)))
                if known.required:
                    required[field] = name
            case KnownUnion(field=field) | KnownSpread(field=field):
                members = _members(known, strict=strict)
                names += members.names
                takers.append((field, members.take))
                adders.append((field, members.add))
            case _:
                assert_never(known)

    def write(value: Any) -> dict[str, Any]:
        made: dict[str, Any] = {}
        for field, add in adders:
            add(made, getattr(value, field))
        made.update(value.unknown)
        return made

    check = _only_known(cls, [*readers, *names]) if strict else _keep
    return Codec(_struct_reader(cls, readers, required, takers, check), write)


def _struct_reader(
    cls: Any,
    readers: Mapping[str, tuple[str, _Read]],
    required: Mapping[str, str],
    takers: Sequence[tuple[str, _Take]],
    check: _Check,
) -> _Read:
    """Reads an object.

    readers: field and reader of each member that is a field by itself, by the member's name.
    required: the names of members that must be there, by their fields.
    takers: of the fields that are several members.
    check: of the members that are left.
    """

    def read(value: object) -> object:
        if type(value) is not dict:
            raise expected("an object", value)
        made: dict[str, Any] = {}
        others: dict[str, Any] = {}
        key = ""
        try:
            for key, found in value.items():
                if key not in readers:
                    others[key] = found
                elif found is not None:
                    field, read_member = readers[key]
                    made[field] = read_member(found)
        except BadValueError as error:
            error.steps.append(f".{key}")
            raise
        if not required.keys() <= made.keys():
            absent = [name for field, name in required.items() if field not in made]
            raise BadValueError("lacks " + ", ".join(absent))
        for field, take in takers:
            made[field] = take(others)
        if not others:
            return cls(**made)
        check(others)
        return cls(**made, unknown=others)

    return read


def _keep(others: Mapping[str, Any]) -> None:
    """Members that a type does not know are kept: only a newer API can have written them."""


def _only_known(cls: Any, known: Iterable[str]) -> _Check:
    """Refuses members that neither the type nor the API knows."""
    names = tuple(known)

    def check(others: Mapping[str, Any]) -> None:
        for name in others:
            if name not in cls.NOT_READ:
                raise not_a_field(name, cls.__name__, names)

    return check


def _adder(known: KnownMember, write: Callable[[Any], Any]) -> _Add:
    """Adds a field's one member to those of its object, unless it may be left out."""
    name, default = known.name, known.default
    always = known.required or bool(default)  # the API server writes non-empty defaults too

    def add(made: dict[str, Any], value: object) -> None:
        if always or value != default:
            made[name] = write(value)

    return add


def _members(known: KnownUnion | KnownSpread, *, strict: bool) -> _MembersCodec:
    match known:
        case KnownUnion(alternatives=members):
            return _at_most_one(_alternatives(members, strict=strict))
        case KnownSpread(how=how):
            return _spread(how, strict=strict)
    assert_never(known)


def _spread(how: Spread, *, strict: bool) -> _MembersCodec:
    """A field whose value is several members together."""
    members = {name: codec(kind, strict=strict) for name, kind in how.members.items()}
    readers = {name: at(f".{name}", member.read) for name, member in members.items()}

    def take(others: dict[str, Any]) -> object:
        present = _taken(others, readers)
        value = how.join(present)
        if strict:
            _check_nothing_lost(present, how.split(value))
        return value

    def add(made: dict[str, Any], value: object) -> None:
        for name, part in how.split(value).items():
            made[name] = members[name].write(part)

    return _MembersCodec(tuple(members), take, add)


def _check_nothing_lost(present: Mapping[str, Any], kept: Mapping[str, Any]) -> None:
    """Each member that is present must keep its value in the value of the field."""
    for name, found in present.items():
        if name not in kept:
            error = BadValueError(
                f"is {found!r}, which has no effect beside {' and '.join(kept)}; remove it"
            )
        elif kept[name] != found:
            error = BadValueError(
                f"is {found!r}, which means {kept[name]!r}; write {kept[name]!r}, or leave it out"
            )
        else:
            continue
        error.steps.append(f".{name}")
        raise error


def _taken(others: dict[str, Any], readers: Mapping[str, _Read]) -> dict[str, Any]:
    """Takes the members with a reader out of an object's; those that are not null, as read."""
    found = {name: others.pop(name) for name in readers if name in others}
    return {name: readers[name](value) for name, value in found.items() if value is not None}


# Unions ----------------------------------------------------------------------------------------


def _at_most_one(alternatives: Mapping[str, Codec]) -> _MembersCodec:
    """A field that is one of several members, given by their names in JSON, or None."""
    readers = {name: alternative.read for name, alternative in alternatives.items()}

    def take(others: dict[str, Any]) -> UnionMember | None:
        if not others:  # nearly always
            return None
        present = _taken(others, readers)
        if len(present) > 1:
            raise BadValueError(f"has {' and '.join(present)}, but only one of them may be present")
        return next(iter(present.values()), None)

    def add(made: dict[str, Any], value: UnionMember | None) -> None:
        if value is not None:
            made.update(alternatives[value.json_key].write(value))

    return _MembersCodec(tuple(alternatives), take, add)


def _alternatives(members: Mapping[str, type[UnionMember]], *, strict: bool) -> dict[str, Codec]:
    return {name: _alternative(name, member, strict=strict) for name, member in members.items()}


def _alternative(name: str, member: Any, *, strict: bool) -> Codec:
    """An alternative: read from the value of its JSON member, written as an object with it."""
    match known_members(member):
        case (KnownMember(field=field, kind=kind),):
            value = codec(kind, strict=strict)
            read, write = value.read, value.write
            return Codec(
                at(f".{name}", lambda found: member(read(found))),
                lambda made: {name: write(getattr(made, field)), **made.unknown},
            )
        case _:
            read_true = true_reader(member)
            return Codec(at(f".{name}", read_true), lambda made: {name: True, **made.unknown})


def _union(kind: Any, *, strict: bool) -> Codec:
    """An object that is one alternative of a union and nothing else.

    The one type of the union that is not a Member is for objects that only a newer API knows.
    """
    by_name = _alternatives(union_members(kind), strict=strict)
    (newer,) = (other for other in alternatives(kind) if not issubclass(other, UnionMember))
    of_newer = codec(newer)
    check = _only_known(newer, by_name) if strict else _keep
    take = _at_most_one(by_name).take
    readers = {name: alternative.read for name, alternative in by_name.items()}
    writers = {member: by_name[name].write for name, member in union_members(kind).items()}
    writers[newer] = of_newer.write

    def read(value: object) -> object:
        if type(value) is not dict:
            raise expected("an object", value)
        if len(value) == 1:  # nearly always
            ((name, found),) = value.items()
            if name in readers and found is not None:
                return readers[name](found)
        unknown = dict(value)
        known = take(unknown)
        check(unknown)
        if strict and known is None:
            raise BadValueError(f"lacks one of {', '.join(by_name)}")
        return of_newer.read(unknown) if known is None else replace(known, unknown=unknown)

    return Codec(read, lambda value: writers[type(value)](value))
