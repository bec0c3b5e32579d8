"""What calls cost: at least what cel-go charges, and enough to bound time and memory.

One unit stands for at most about 0.2 µs and 16 bytes. So an evaluation that reaches the limit takes
about 0.2 s and at most 16 MiB.

Values can share parts: `[x, x]` has x twice, and a chain of such lists has exponentially many
elements. Whatever visits the elements visits a shared one each time, so it is charged each time.
"""

from collections.abc import Callable, Sequence
from typing import Final

from carina_dra.cel.budget import LIMIT
from carina_dra.cel.values import Optional, Url, Value

_COMPARED: Final = 4
"""The cost of the comparison of two elements."""
_HEAVIEST: Final = LIMIT // _COMPARED
"""The comparison of a heavier value exceeds the limit."""
_DEEPEST: Final = 100
"""The maximal number of levels of a value that is compared or written: each takes stack."""
_PIECE: Final = 8
"""The cost of a new string in a list."""
_TEXTS: Final = frozenset({str, bytes})


def constant(cost: int) -> Callable[..., int]:
    """The cost of a call that does not depend on the sizes of its arguments."""
    return lambda *_: cost


def tenth(size: int) -> int:
    """The cost of a pass over `size` characters or elements."""
    return (size + 9) // 10


def read(*arguments: Value) -> int:
    """A pass over the texts among the arguments."""
    return 1 + sum(len(each) // 10 for each in arguments if isinstance(each, str | bytes))


def made(size: int) -> int:
    """A new text of `size` characters or bytes."""
    return 1 + size // 4


def search(text: str, part: str) -> int:
    """A search for a part; the worst case is the product of the lengths."""
    return max(1, tenth(len(text)) * tenth(len(part)))


def weight(value: Value, most: int = _HEAVIEST) -> int:
    """The number of elements in a value, plus a tenth of the characters.

    Elements that occur several times count each time. A value with more than `most` or with too
    many levels counts as one whose comparison exceeds the limit.
    """
    total, level = 0, [value]
    for _ in range(_DEEPEST):
        total += len(level)
        inner: list[Value] = []
        for part in level:
            if type(part) is tuple:
                inner += part
            elif type(part) in _TEXTS:
                total += len(part) // 10
            elif isinstance(part, dict):
                inner += part.keys()
                inner += part.values()
            elif isinstance(part, Optional):
                inner += part.values
            elif isinstance(part, Url):
                inner += (part.host, part.path, part.query)
            if total + len(inner) > most:
                return _HEAVIEST + 1
        if not inner:
            return total
        level = inner
    return _HEAVIEST + 1


def _is_flat(value: Value) -> bool:
    return not isinstance(value, tuple | dict | Optional | Url)


def comparison(left: Value, right: Value) -> int:
    """The comparison of two values."""
    if isinstance(left, str | bytes) and isinstance(right, str | bytes):
        return max(1, tenth(min(len(left), len(right))))
    if _is_flat(left) or _is_flat(right):
        return 1
    weight_of_left = weight(left)
    return _COMPARED * (weight_of_left + weight(right, _HEAVIEST - weight_of_left))


def membership(item: Value, among: Sequence[Value]) -> int:
    """The comparison of an item with each element of a list."""
    if _is_flat(item):
        return max(1, 2 * len(among) * read(item))
    return _COMPARED * (weight(item) + weight(among))


def pairs(left: Sequence[Value], right: Sequence[Value]) -> int:
    """The comparison of each element of a list with each element of another."""
    return 1 + _COMPARED * min(len(left) * weight(right), len(right) * weight(left))


def elements(items: Sequence[Value], *_: Value) -> int:
    """A new list of these elements, or a pass over them."""
    return max(1, len(items))


def neighbours(items: Sequence[Value]) -> int:
    """The comparison of each element with the next."""
    return _COMPARED * weight(items)


def ordering(keys: Sequence[Value]) -> int:
    """The sorting of a list by its keys."""
    longest = max((len(key) for key in keys if isinstance(key, str | bytes)), default=0)
    return 1 + len(keys) * (len(keys).bit_length() + 3) * (1 + longest // 10)


def joined(left: Value, right: Value) -> int:
    """The concatenation of two texts or lists."""
    size = len(left) + len(right)
    return max(1, size) if isinstance(left, tuple) else made(size)


def split(text: str, by: str, count: int = -1) -> int:
    """The parts of a text."""
    most = text.count(by) + 1
    return made(len(text)) + search(text, by) + _PIECE * (most if count < 0 else min(most, count))


def replaced(text: str, old: str, new: str, count: int = -1) -> int:
    """A text with its parts replaced."""
    found = text.count(old)
    found = found if count < 0 else min(found, count)
    return search(text, old) + made(len(text) + len(new) * found)


def concatenated(parts: Sequence[Value], by: str = "") -> int:
    """The parts of a list of texts in one text."""
    texts = sum(len(part) for part in parts if isinstance(part, str))
    return 1 + len(parts) + (texts + len(parts) * len(by)) // 4
