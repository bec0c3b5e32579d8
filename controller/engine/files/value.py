"""The codec of frozen dataclasses: from JSON to values, and back exactly.

The fields of a class describe its JSON object. A field's name in JSON is its own in camelCase. A
field that has its default is left out; `null` is None where that is a value, and absence elsewhere.
A union of classes is an object with one member, which is
the name of the class in camelCase (`{placed: {node: n1}}`), or only that name for a class without
fields (`pending`). A field may bring its own codec: `Annotated[float, DURATION]`.

Types of the DRA API (`Struct`) are read and written by their own codec, strictly.

What a type has by its shape alone is that of all dialects (`carina_dra.resource.dialect`). The
codecs of classes and unions are this module's own, since the rules differ: the API keeps what only
a newer version can have written, writes the alternative of a union as a member of the object
around it, and calls a field without a default required even if it may be None.
"""

import math
import re
import types
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields, is_dataclass
from fractions import Fraction
from typing import Any, Final, get_args, get_type_hints

from carina_dra.allocator.preference import Policy
from carina_dra.resource import codec as resource_codec
from carina_dra.resource.dialect import Dialect, no_codec
from carina_dra.resource.errors import BadValueError, did_you_mean, expected, not_a_field, shown
from carina_dra.resource.schema import Struct, camel_case
from carina_dra.resource.value_codec import LEAVES, Codec, at
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
    return _FILES.codec(kind)


def _of_class(kind: Any) -> Codec:
    if issubclass(kind, Struct):
        return resource_codec.codec(kind, strict=True)
    if is_dataclass(kind):
        return _object(kind)
    raise no_codec(kind)


class JsonMembers:
    """The fields of a class as members of a JSON object."""

    def __init__(self, cls: Any, *, without: Collection[str] = ()) -> None:
        """`without`: fields that have no member."""
        hints = get_type_hints(cls, include_extras=True)
        self._kind = getattr(cls, "KIND", cls.__name__)
        self._members = {
            camel_case(field.name): _Member(
                field.name,
                _AMOUNTS.get((cls, field.name), hints[field.name]),
                _default(field, hints),
            )
            for field in fields(cls)
            if field.name not in without
        }
        self._readers: dict[object, tuple[str, Callable[[Any], Any], bool]] = {}
        """Field, reader and whether it may be None, by member, once the first object is read."""

    def read(self, value: object) -> dict[str, Any]:
        """The arguments of the constructor.

        Raises:
            BadValueError: a member is unknown, wrong, or absent although it has no default.
        """
        if type(value) is not dict:
            raise expected("an object", value)
        readers = self._readers or self._find_readers()
        made: dict[str, Any] = {}
        name, unknown = "", None
        try:
            for name, found in value.items():
                known = readers.get(name)
                if known is None:
                    unknown = not_a_field(name, self._kind, self._members)
                    break
                member, read, is_optional = known
                if found is not None:
                    made[member] = read(found)
                elif is_optional:
                    made[member] = None
        except BadValueError as error:
            error.steps.append(f".{name}")
            raise
        if unknown is not None:
            raise unknown
        absent = {
            name: json_member
            for name, json_member in self._members.items()
            if json_member.field not in made
        }
        if missing := [
            name for name, json_member in absent.items() if json_member.default is MISSING
        ]:
            raise BadValueError("lacks " + ", ".join(missing))
        return made | {
            json_member.field: None
            for json_member in absent.values()
            if json_member.default is None
        }

    def _find_readers(self) -> dict[object, tuple[str, Callable[[Any], Any], bool]]:
        """Returns the readers, which are found late since types can refer to themselves."""
        self._readers = {
            name: (member.field, codec_of(member.kind).read, _is_optional(member.kind))
            for name, member in self._members.items()
        }
        return self._readers

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
    of_class = JsonMembers(cls)

    def read(value: object) -> object:
        members = of_class.read(value)
        try:
            return cls(**members)
        except ValueError as error:
            raise BadValueError(str(error)) from None

    return Codec(read, of_class.write)


def _union(kinds: Sequence[Any]) -> Codec:
    names = {kind.__name__[0].lower() + kind.__name__[1:]: kind for kind in kinds}
    name_of = {kind: name for name, kind in names.items()}
    plain = {name for name, kind in names.items() if not fields(kind)}

    def read(value: object) -> object:
        match value:
            case str() if value in plain:
                return names[value]()
            case dict() if len(value) == 1 and next(iter(value)) in names:
                ((name, found),) = value.items()
                return at(f".{name}", codec_of(names[name]).read)(found)
            case dict() if len(value) == 1:
                (name,) = value
                raise BadValueError(f"has {shown(name)}; {did_you_mean(str(name), names)}")
            case _:
                raise expected(f"one of {', '.join(names)}", value)

    def write(value: object) -> object:
        name = name_of[type(value)]
        return name if name in plain else {name: codec_of(type(value)).write(value)}

    return Codec(read, write)


def _default(field: "Field[Any]", hints: Mapping[str, Any]) -> object:
    if field.default_factory is not MISSING:
        return field.default_factory()
    return None if field.default is MISSING and _is_optional(hints[field.name]) else field.default


def _is_optional(kind: Any) -> bool:
    return types.NoneType in get_args(kind)


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
_FILES: Final = Dialect(
    _LEAVES, of_class=_of_class, of_union=lambda _, kinds: _union(kinds), checks_keys=True
)
