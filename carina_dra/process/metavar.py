"""What `--help` shows for the value of a flag, from the type of its setting."""

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Final, Literal, Union, get_args, get_origin

_OF_TYPES: Final[dict[type, str]] = {
    str: "TEXT",
    int: "INTEGER",
    float: "NUMBER",
    bool: "true|false",
    Path: "PATH",
}


@dataclass(frozen=True, slots=True)
class Metavar:
    """Metadata of a type with a form of its own, such as `Annotated[str, Metavar("HOST:PORT")]`."""

    text: str


def metavar(annotation: Any, metadata: Iterable[object] = ()) -> str:
    """Returns the metavar of a type with metadata, such as `NUMBER` or `json|text`.

    The None of an optional type is left out. The members of a collection are separated by commas.
    """
    chosen = next((known.text for known in metadata if isinstance(known, Metavar)), None)
    if chosen is not None:
        return chosen
    arguments = get_args(annotation)
    origin = get_origin(annotation)
    if origin is None:
        return _of_class(annotation)
    if origin is Annotated:
        return metavar(arguments[0], arguments[1:])
    if origin is Literal:
        return "|".join(map(str, arguments))
    if origin in (Union, UnionType):
        return "|".join(metavar(part) for part in arguments if part is not NoneType)
    if issubclass(origin, Collection):
        return f"{metavar(arguments[0])},..."
    raise AssertionError(f"no metavar for {annotation}")


def _of_class(kind: type) -> str:
    if issubclass(kind, Enum):
        return "|".join(str(member.value) for member in kind)
    return _OF_TYPES.get(kind, kind.__name__.upper())
