"""The codec of frozen dataclasses: from JSON to values, and back exactly.

The fields of a class describe its JSON object. A field's name in JSON is its own in camelCase. A
field that has its default is left out; `null` is None where that is a value, and absence elsewhere.
A union of classes is an object with one member, which is
the name of the class in camelCase (`{placed: {node: n1}}`), or only that name for a class without
fields (`pending`). A field may bring its own codec: `Annotated[float, DURATION]`.

Types of the DRA API (`Struct`) are read and written by their own codec, strictly.
"""

import math
import re
import types
from collections.abc import Callable, Collection, Mapping
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from enum import Enum
from fractions import Fraction
from functools import cache
from typing import Annotated, Any, Final, Union, get_args, get_origin, get_type_hints

from carina_dra.allocator.preference import Policy
from carina_dra.resource import codec as resource_codec
from carina_dra.resource.errors import BadValueError, did_you_mean, expected, not_a_field, shown
from carina_dra.resource.schema import Struct
from carina_dra.resource.value_codec import LEAVES, Codec, closed_enumeration, list_of
from controller.engine.files.amount import Bytes, MilliCpu
from controller.engine.model.pod import PodNeeds
from controller.engine.model.resource import Resource, describe, parse_resource

_FRACTION: Final = re.compile(r"-?[0-9]{1,40}(/[0-9]{1,40}|\.[0-9]{1,40})?")
_UPSTREAM: Final = "upstream"
_FOREVER: Final = "inf"
_AMOUNTS: Final[Mapping[tuple[type, str], Any]] = {
    (PodNeeds, "cpu"): MilliCpu,
    (PodNeeds, "memory"): Bytes,
}
"""Fields that are written as quantities."""


def codec_of(kind: Any) -> Codec:
    """The codec of a type, as fields are annotated with it."""
    return _codec_of(kind)  # the cache is typed for instances, not classes


@cache
def _codec_of(kind: Any) -> Codec:
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is Annotated:
        own = [each for each in arguments[1:] if isinstance(each, Codec)]
        return own[0] if own else codec_of(arguments[0])
    if origin is tuple:
        return _tuple(arguments)
    if origin is frozenset:
        return _set_of(codec_of(arguments[0]))
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return _map(codec_of(arguments[0]), _lazy(arguments[1]))
    if origin in (Union, types.UnionType):
        return _union([each for each in arguments if each is not types.NoneType])
    if isinstance(kind, type) and issubclass(kind, Enum):
        return closed_enumeration(kind)
    if isinstance(kind, type) and issubclass(kind, Struct):
        return resource_codec.codec(kind, strict=True)
    if is_dataclass(kind):
        return _object(kind)
    raise TypeError(f"{kind} has no codec")


class Members:
    """The fields of a class as members of a JSON object."""

    def __init__(self, cls: Any, *, without: Collection[str] = ()) -> None:
        """`without`: fields that have no member."""
        hints = get_type_hints(cls, include_extras=True)
        self._kind = getattr(cls, "KIND", cls.__name__)
        self._members = {
            json_name(field.name): _Member(
                field.name,
                _AMOUNTS.get((cls, field.name), hints[field.name]),
                _default(field, hints),
            )
            for field in fields(cls)
            if field.name not in without
        }

    def read(self, value: object) -> dict[str, Any]:
        """The arguments of the constructor.

        Raises:
            BadValueError: a member is unknown, wrong, or absent although it has no default.
        """
        if type(value) is not dict:
            raise expected("an object", value)
        made: dict[str, Any] = {}
        for name, found in value.items():
            member = self._members.get(name)
            if member is None:
                raise not_a_field(name, self._kind, self._members)
            if found is not None:
                made[member.field] = _at(f".{name}", codec_of(member.kind).read, found)
            elif _is_optional(member.kind):
                made[member.field] = None
        absent = {name: each for name, each in self._members.items() if each.field not in made}
        if missing := [name for name, each in absent.items() if each.default is MISSING]:
            raise BadValueError("lacks " + ", ".join(missing))
        return made | {each.field: None for each in absent.values() if each.default is None}

    def write(self, value: object) -> dict[str, Any]:
        """The JSON object; what `read` reads."""
        return {
            name: None if found is None else codec_of(member.kind).write(found)
            for name, member in self._members.items()
            if (found := getattr(value, member.field)) != member.default
        }


@dataclass(frozen=True, slots=True)
class _Member:
    field: str
    kind: Any
    default: object
    """Its value if it is absent; MISSING if it must be there."""


# Classes and unions ------------------------------------------------------------------------------


def _object(cls: Any) -> Codec:
    of_class = Members(cls)

    def read(value: object) -> object:
        members = of_class.read(value)
        try:
            return cls(**members)
        except ValueError as error:
            raise BadValueError(str(error)) from None

    return Codec(read, of_class.write)


def _union(kinds: list[Any]) -> Codec:
    if len(kinds) == 1:
        return codec_of(kinds[0])
    names = {json_name(_first_lower(kind.__name__)): kind for kind in kinds}
    name_of = {kind: name for name, kind in names.items()}
    plain = {name for name, kind in names.items() if not fields(kind)}

    def read(value: object) -> object:
        match value:
            case str() if value in plain:
                return names[value]()
            case dict() if len(value) == 1 and next(iter(value)) in names:
                ((name, found),) = value.items()
                return _at(f".{name}", codec_of(names[name]).read, found)
            case dict() if len(value) == 1:
                (name,) = value
                raise BadValueError(f"has {shown(name)}; {did_you_mean(str(name), names)}")
            case _:
                raise expected(f"one of {', '.join(names)}", value)

    def write(value: object) -> object:
        name = name_of[type(value)]
        return name if name in plain else {name: codec_of(type(value)).write(value)}

    return Codec(read, write)


def _default(of: "Field[Any]", hints: Mapping[str, Any]) -> object:
    if of.default_factory is not MISSING:
        return of.default_factory()
    return None if of.default is MISSING and _is_optional(hints[of.name]) else of.default


def _is_optional(kind: Any) -> bool:
    return types.NoneType in get_args(kind)


def json_name(name: str) -> str:
    """The name of a field in JSON."""
    return re.sub(r"_([a-z])", lambda match: match.group(1).upper(), name)


def _first_lower(name: str) -> str:
    return name[0].lower() + name[1:]


def _lazy(kind: Any) -> Codec:
    """Finds the codec when it is used, since types can refer to themselves."""
    return Codec(
        lambda value: codec_of(kind).read(value), lambda value: codec_of(kind).write(value)
    )


def _at(step: str, read: Callable[[Any], Any], value: object) -> Any:
    """Reads a part of a value; an error gets its place."""
    try:
        return read(value)
    except BadValueError as error:
        error.steps.append(step)
        raise


# Collections -------------------------------------------------------------------------------------


def _tuple(kinds: tuple[Any, ...]) -> Codec:
    if len(kinds) == 2 and kinds[1] is ...:
        return list_of(_lazy(kinds[0]))
    return _fixed([codec_of(kind) for kind in kinds])


def _fixed(items: list[Codec]) -> Codec:
    """A tuple with a type for each of its items, which is a list in JSON."""

    def read(value: object) -> tuple[object, ...]:
        if type(value) is not list or len(value) != len(items):
            raise expected(f"a list of {len(items)} values", value)
        return tuple(
            _at(f"[{index}]", item.read, found)
            for index, (item, found) in enumerate(zip(items, value, strict=True))
        )

    return Codec(
        read,
        lambda value: [item.write(found) for item, found in zip(items, value, strict=True)],
    )


def _set_of(item: Codec) -> Codec:
    values = list_of(item)
    return Codec(
        lambda value: frozenset(values.read(value)),
        lambda value: sorted(item.write(found) for found in value),
    )


def _map(key: Codec, item: Codec) -> Codec:
    def read(value: object) -> dict[object, object]:
        if type(value) is not dict:
            raise expected("an object", value)
        return {
            _at(f"[{name}]", key.read, name): _at(f"[{name}]", item.read, found)
            for name, found in value.items()
        }

    return Codec(
        read, lambda value: {key.write(name): item.write(found) for name, found in value.items()}
    )


# Single values -----------------------------------------------------------------------------------


def _read_number(value: object) -> float:
    if value == _FOREVER:
        return math.inf
    if type(value) not in (int, float):
        raise expected(f"a number or {_FOREVER}", value)
    try:
        number = float(value)  # type: ignore[arg-type] # it is an int or a float
    except OverflowError:
        raise expected("a number of 64 bits", value) from None
    if math.isnan(number) or math.isinf(number):
        raise expected(f"a number or {_FOREVER}", value)
    return number


def _read_fraction(value: object) -> Fraction:
    """A number, or a fraction such as `1/3`; 0.1 is exactly a tenth."""
    if type(value) in (int, float) or (type(value) is str and _FRACTION.fullmatch(value)):
        try:
            return Fraction(str(value))
        except (ValueError, ZeroDivisionError):  # infinite
            pass
    raise expected("a number, or a fraction such as 1/3", value)


def _write_fraction(value: Fraction) -> object:
    return value.numerator if value.denominator == 1 and abs(value) < 2**63 else str(value)


def _read_policy(value: object) -> Policy:
    if type(value) is not str:
        raise expected("a policy such as binpack", value)
    try:
        nodes, _, devices = value.partition("/")
        if devices == _UPSTREAM:
            return Policy(Policy.parse(nodes).nodes, None)
        return Policy.parse(value)
    except ValueError as error:
        raise BadValueError(str(error)) from None


def _write_policy(policy: Policy) -> str:
    devices = policy.devices or _UPSTREAM
    return str(policy.nodes) if devices == policy.nodes else f"{policy.nodes}/{devices}"


def _read_resource(value: object) -> Resource:
    if type(value) is not str:
        raise expected("a resource such as cpu", value)
    try:
        return parse_resource(value)
    except ValueError as error:
        raise BadValueError(str(error)) from None


_LEAVES: Final[Mapping[Any, Codec]] = {
    **LEAVES,
    float: Codec(_read_number, lambda value: _FOREVER if value == math.inf else value),
    Fraction: Codec(_read_fraction, _write_fraction),
    Policy: Codec(_read_policy, _write_policy),
    Resource: Codec(_read_resource, describe),
}
