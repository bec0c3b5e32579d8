"""What is wrong with JSON that is not the object it should be."""

from collections.abc import Iterable
from difflib import get_close_matches
from reprlib import Repr
from typing import Final

_LONGEST: Final = 80
"""The maximal number of characters of a value in a message."""
_MAX_BITS: Final = 256
"""Larger integers are not written out: Python refuses to if they have more than 4,300 digits."""


class _Excerpt(Repr):
    """Writes the beginning of a value, whatever its size and depth."""

    def __init__(self) -> None:
        super().__init__()
        self.maxlevel = 3
        self.maxstring = self.maxlong = self.maxother = _LONGEST

    def repr_int(self, x: int, level: int) -> str:
        if x.bit_length() > _MAX_BITS:
            return f"an integer of {x.bit_length()} bits"
        return super().repr_int(x, level)


_EXCERPT: Final = _Excerpt()


class DecodeError(ValueError):
    """JSON that is not an object of the expected type. The message names object and field."""

    def __init__(self, kind: str, key: str, path: str, problem: str) -> None:
        where = f"{kind} {key}".rstrip()
        super().__init__(": ".join(part for part in (where, path, problem) if part))
        self.kind = kind
        """The type of object that was expected."""
        self.key = key
        """`namespace/name`, as far as it can be read."""
        self.path = path
        """The field, such as `spec.devices[0].name`; empty for the object itself."""
        self.problem = problem
        """The value that was found, and what was expected."""


class BadValueError(Exception):
    """A value is not of the expected type. Each level that it passes adds its step to the path."""

    def __init__(self, problem: str) -> None:
        super().__init__(problem)
        self.problem = problem
        self.steps: list[str] = []
        """The innermost first."""

    @property
    def path(self) -> str:
        """The path of the value, such as `spec.devices[0].name`."""
        return "".join(reversed(self.steps)).lstrip(".")


def expected(what: str, found: object) -> BadValueError:
    """The error for a value that is not `what`."""
    return BadValueError(f"is {shown(found)}, not {what}")


def not_a_field(name: str, kind: str, known: Iterable[str]) -> BadValueError:
    """The error for a member that a type does not have. Its path ends with the member."""
    names = tuple(known)
    error = BadValueError(f"is not a field of {kind}; {did_you_mean(name, names)}")
    error.steps.append(f".{name}")
    return error


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """The remedy for an unknown word: the known word next to it, or all known words."""
    by_lower_case = {name.lower(): name for name in known}
    near = get_close_matches(word.lower(), by_lower_case, n=1)
    if near:
        return f"did you mean {by_lower_case[near[0]]}?"
    return f"write one of {', '.join(by_lower_case.values())}"


def shown(value: object) -> str:
    """The beginning of a JSON value, for a message."""
    return f"{_EXCERPT.repr(value):.{_LONGEST}}"
