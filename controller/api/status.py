"""Statuses as the controller writes them."""

from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any

from carina_dra.resource.schema import camel_case


def status_body(status: Any) -> dict[str, Any]:
    """Returns a status, or a part of one, as an object of the API.

    It has every field that is not None, even with its default: the API server adds the default of
    one that is absent, and the status would never be as desired.
    """
    cls: Any = type(status)  # the cache is typed for instances, not classes
    return {
        name: _written(value)
        for field, name in _members(cls)
        if (value := getattr(status, field)) is not None
    }


@cache
def _members(cls: Any) -> tuple[tuple[str, str], ...]:
    return tuple((field.name, camel_case(field.name)) for field in fields(cls))


def _written(value: Any) -> Any:
    if is_dataclass(value):
        return status_body(value)
    if isinstance(value, tuple):
        return [_written(item) for item in value]
    return value.value if isinstance(value, Enum) else value
