"""The codec of a type, by the shape of the type: collections, unions, enumerations and classes.

The API's types (`codec`) and the engine's (`controller.engine.files.value`) are two dialects of
JSON. They share all that is here. They differ in what a class and a union are written as.
"""

import types
from collections.abc import Callable, Mapping, Sequence
from enum import Enum
from typing import Annotated, Any, Union, get_args, get_origin

from carina_dra.resource.value_codec import (
    Codec,
    closed_enumeration,
    fixed_list_of,
    list_of,
    map_of,
    set_of,
)


class Dialect:
    """Makes the codec of each type once."""

    def __init__(
        self,
        leaves: Mapping[Any, Codec],
        *,
        of_class: Callable[[Any], Codec],
        of_union: Callable[[Any, Sequence[Any]], Codec],
        checks_keys: bool = False,
    ) -> None:
        """`leaves` are the types that have codecs of their own.

        of_class: gives the codec of a class that is no enumeration; raises TypeError.
        of_union: the same of a union, from it and from its types other than None, two or more.
        checks_keys: whether the keys of maps have types. Keys of JSON are strings anyway.
        """
        self._codecs = dict(leaves)
        self._of_class = of_class
        self._of_union = of_union
        self._checks_keys = checks_keys

    def codec(self, kind: Any) -> Codec:
        """Returns the codec of a type, as fields are annotated with it.

        Raises:
            TypeError: it has none.
        """
        known = self._codecs.get(kind)
        if known is None:
            known = self._codecs[kind] = self._made(kind)
        return known

    def _made(self, kind: Any) -> Codec:
        origin, arguments = get_origin(kind), get_args(kind)
        if origin is Annotated:
            own = [argument for argument in arguments[1:] if isinstance(argument, Codec)]
            return own[0] if own else self.codec(arguments[0])
        if origin is tuple and arguments[1:] == (...,):
            return list_of(self.codec(arguments[0]))
        if origin is tuple:
            return fixed_list_of([self.codec(item) for item in arguments])
        if origin is frozenset:
            return set_of(self.codec(arguments[0]))
        if isinstance(origin, type) and issubclass(origin, Mapping):
            key, item = map(self.codec, arguments)
            return map_of(item, key if self._checks_keys else None)
        if origin in (Union, types.UnionType):
            kinds = [member for member in arguments if member is not types.NoneType]
            return self._of_union(kind, kinds) if len(kinds) > 1 else self.codec(kinds[0])
        if isinstance(kind, type) and issubclass(kind, Enum):
            return closed_enumeration(kind)
        if isinstance(kind, type):
            return self._of_class(kind)
        raise no_codec(kind)


def no_codec(kind: Any) -> TypeError:
    """Returns the error for a type without a codec."""
    return TypeError(f"{kind} has no codec")
