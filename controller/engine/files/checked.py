"""Types of fields that the API server checks, and rules across the fields of an object.

The codec and the structural schema of such a type are made together, so that the controller reads
what the API server accepts. Generators of schemas read `Checked.schema` and `RULES`.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from carina_dra.resource.errors import BadValueError, expected
from carina_dra.resource.value_codec import Codec, list_of

DNS_SUBDOMAIN: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*"
DNS_LABEL: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
LABEL_KEY: Final = rf"({DNS_SUBDOMAIN}/)?[A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?"
LABEL_VALUE: Final = r"([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?"
LONGEST_LABEL: Final = 63
"""Characters of a label's value."""
LONGEST_NAME: Final = 253
"""Characters of an object's name."""


@dataclass(frozen=True, slots=True)
class Checked(Codec):
    """A codec, and the keywords of the structural schema that accepts the same values.

    Without `type` and `x-kubernetes-int-or-string`, the keywords add to the schema of the type that
    is annotated.
    """

    schema: Mapping[str, Any] = field(compare=False)


@dataclass(frozen=True, slots=True)
class WrittenAs(Codec):
    """A codec of values that are written as those of another class, which has their schema."""

    form: type = field(compare=False)


@dataclass(frozen=True, slots=True)
class Rule:
    """A CEL rule of a schema (x-kubernetes-validations), with `self` as the object."""

    expression: str
    message: str
    """Begins with the field, and says what to write."""


def text(what: str, pattern: str, longest: int) -> Checked:
    """A string that matches a pattern as a whole, with at most `longest` characters.

    `what` completes "is 7, not ..." in errors.
    """
    matches = re.compile(pattern, re.ASCII).fullmatch

    def read(value: object) -> object:
        if type(value) is not str or len(value) > longest or not matches(value):
            raise expected(what, value)
        return value

    schema = {"type": "string", "pattern": f"^({pattern})$", "maxLength": longest}
    return Checked(read, lambda value: value, schema)


def choice(*words: str) -> Checked:
    """One of several words."""

    def read(value: object) -> object:
        if type(value) is not str or value not in words:
            raise expected(f"one of {', '.join(words)}", value)
        return value

    return Checked(read, lambda value: value, {"type": "string", "enum": list(words)})


def integer(least: int, most: int) -> Checked:
    """An integer within bounds, both included, of at most 32 bits."""

    def read(value: object) -> object:
        if type(value) is not int or not least <= value <= most:
            raise expected(f"an integer from {least} to {most}", value)
        return value

    schema = {"type": "integer", "format": "int32", "minimum": least, "maximum": most}
    return Checked(read, lambda value: value, schema)


def items(
    item: Callable[[], Codec], most: int, *, least: int = 0, key: str | None = None
) -> Checked:
    """A list with at most `most` items.

    key: the field in which items differ; a word that is the same in JSON.
    """

    def read(value: object) -> object:
        if type(value) is list and not least <= len(value) <= most:
            raise BadValueError(f"has {len(value)} items; write {least} to {most}")
        found = list_of(item()).read(value)
        if key is not None:
            names = [getattr(entry, key) for entry in found]
            if len(set(names)) < len(names):
                raise BadValueError(f"has two items with the same {key}; rename one of them")
        return found

    schema: dict[str, Any] = {"maxItems": most, **({"minItems": least} if least else {})}
    if key is not None:
        schema |= {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]}
    else:
        schema |= {"x-kubernetes-list-type": "atomic"}
    return Checked(read, lambda values: list_of(item()).write(values), schema)
