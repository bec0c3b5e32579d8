"""Random values of the library's types, for hypothesis.

`resource_objects` makes any type of `carina_dra.resource` out of its fields, so that no field is
forgotten. What it makes is well-formed, not valid: numbers and names are any.
"""

from collections.abc import Mapping
from dataclasses import fields
from datetime import UTC, datetime
from enum import Enum
from typing import Any, TypeVar, cast, get_args, get_origin, get_type_hints

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from carina_dra.quantity import Format, Quantity
from carina_dra.resource import ExactCount, JsonObject, UnknownMode, Unrecognized
from carina_dra.resource.schema import EMPTY, Struct, UnionMember, alternatives

T = TypeVar("T")

quantities = st.builds(
    Quantity, st.integers(min_value=-(10**30), max_value=10**30), st.sampled_from(Format)
)

_words = st.text("abz-./é", max_size=6)
_int64 = st.integers(min_value=-(2**63), max_value=2**63 - 1)
_json = st.recursive(
    st.none() | st.booleans() | _int64 | _words,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_words, inner, max_size=2),
    max_leaves=4,
)
_newer_words = _words.map("Newer{}".format)
_newer_members = st.dictionaries(_words.map("newer-{}".format), _json, max_size=1)

_LEAVES: Mapping[Any, SearchStrategy[Any]] = {
    str: _words,
    int: _int64,
    bool: st.booleans(),
    type(None): st.none(),
    datetime: st.datetimes(timezones=st.just(UTC)).map(lambda at: at.replace(microsecond=0)),
    Quantity: quantities.filter(lambda quantity: abs(quantity.value()) < 2**63),
    JsonObject: st.dictionaries(_words, _json, max_size=2),
    # The types of their fields do not say what these mean.
    ExactCount: st.builds(ExactCount, st.integers(min_value=1, max_value=2**63 - 1)),
    UnknownMode: st.builds(UnknownMode, _newer_words, _int64),
    Unrecognized: st.builds(Unrecognized, _newer_words),
}


def resource_objects(kind: type[T]) -> SearchStrategy[T]:
    """Objects of one type, or parts of one, with members that only a newer API knows."""
    return cast("SearchStrategy[T]", _values(kind))


def _values(kind: Any) -> SearchStrategy[Any]:
    if kind in _LEAVES:
        return _LEAVES[kind]
    origin, arguments = get_origin(kind), get_args(kind)
    if origin is tuple:
        return st.lists(_values(arguments[0]), max_size=2).map(tuple)
    if origin is Mapping:
        return st.dictionaries(_words, _values(arguments[1]), max_size=2)
    if alternatives(kind) != (kind,):
        return st.one_of([_values(each) for each in get_args(kind)])
    if issubclass(kind, Enum):
        return st.sampled_from(kind)
    hints = get_type_hints(kind)
    members = {each.name: _values(hints[each.name]) for each in fields(kind) if each.init}
    if issubclass(kind, Struct):
        # Where an alternative is one member among others, theirs is the object that keeps the rest.
        members["unknown"] = st.just(EMPTY) if issubclass(kind, UnionMember) else _newer_members
    return st.builds(kind, **members)
