"""One value for equal parts of objects.

The devices of a cluster have few different capacities and counters, and few attributes of their
own. If each device had all its values for itself, they would take most of the time and memory of
reading slices.
"""

import marshal
from functools import lru_cache
from typing import Any, Final

from carina_dra.resource.value_codec import Codec

_FORMAT: Final = 2
"""The version of marshal's format. Equal JSON is equal bytes in it; from version 3 on, an object
that occurs twice is written as a reference."""
_VALUES: Final = 4096
"""How many values of a type are kept. Those read last are kept."""
_LONGEST: Final = 2048
"""Longer parts, in bytes, are not shared: what is kept has a limit."""
_MOST: Final = 64
"""Nor are parts of more objects and lists: an empty one takes two bytes, and in memory 72."""


def shared(codec: Codec) -> Codec:
    """The codec with a reader that gives the same value for equal JSON."""
    read_alone = codec.read

    @lru_cache(_VALUES)
    def read_key(key: bytes) -> object:
        # Not the caller's object, which may change later.
        return read_alone(marshal.loads(key))  # noqa: S302 - written below

    def read(value: Any) -> object:
        try:
            key = marshal.dumps(value, _FORMAT)
        except ValueError:  # not JSON, or nested too deeply
            return read_alone(value)
        return read_key(key) if _is_small(key) else read_alone(value)

    return Codec(read, codec.write)


def _is_small(key: bytes) -> bool:
    # Brackets in strings are counted too.
    return len(key) <= _LONGEST and key.count(b"{") + key.count(b"[") <= _MOST
