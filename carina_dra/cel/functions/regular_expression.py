"""Regular expressions of RE2, which take time linear in the length of the text.

A selector is written by a tenant and evaluated for each device of a cluster, so the time must be
bounded for every pattern: by the size of its program, which repetitions and Unicode classes make
much larger than the pattern.
"""

import re
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import re2

from carina_dra.cel.errors import EvaluationError
from carina_dra.cel.functions.cost import made
from carina_dra.cel.functions.overload import Overload, Spend, function, method
from carina_dra.cel.types import BOOL, INT, STRING, Type, list_of
from carina_dra.cel.values import Value

_MAX_MEMORY: Final = 512 << 10
"""For a program and its states, in bytes. Go's limit is larger."""
_REMEMBERED: Final = 256
_COMPILE_COST: Final = 10
"""The cost of a character of a pattern."""
_CLASS_COST: Final = 1000
"""The same if the pattern can have Unicode classes that are expanded to ignore case."""
_CLASSES: Final = re.compile(r"\\[pP]|\(\?[A-Za-z-]*i")
_SEARCH_COST: Final = 10
_STEPS: Final = 32
"""Characters times instructions of the program that cost one unit."""
_INNER: Final = range(0x80, 0xC0)
"""The bytes of a character in UTF-8 that are not its first."""
LITERAL: Final = "@"
"""The prefix of the functions for literal patterns, which are compiled with the expression."""


@dataclass(frozen=True, slots=True)
class Pattern:
    """A compiled pattern."""

    regexp: "re2._Regexp"
    size: int
    """The number of instructions of its program."""

    def cost(self, length: int) -> int:
        """The cost of a search in a text of that many bytes."""
        return _SEARCH_COST + length * self.size // _STEPS


def compile_cost(pattern: str) -> int:
    """The cost of the compilation of a pattern."""
    return len(pattern) * (_CLASS_COST if _CLASSES.search(pattern) else _COMPILE_COST)


@lru_cache(maxsize=_REMEMBERED)
def compiled(pattern: str) -> Pattern:
    """A compiled pattern.

    Raises:
        EvaluationError: the pattern is invalid, or its program too large.
    """
    options = re2.Options()
    options.log_errors = False
    options.never_capture = True
    options.max_mem = _MAX_MEMORY
    try:
        regexp = re2.compile(pattern.encode(), options)  # for bytes it is faster
    except (re2.error, UnicodeError) as error:
        raise EvaluationError(f"error parsing regexp: {error}") from None
    return Pattern(regexp, regexp.programsize)


def _encoded(text: str) -> bytes:
    try:
        return text.encode()
    except UnicodeError:
        raise EvaluationError("the text is not Unicode") from None


def _of_literal(spend: Spend, pattern: str) -> Pattern:
    del spend  # charged when the expression was compiled
    return compiled(pattern)


def _of_any(spend: Spend, pattern: str) -> Pattern:
    spend(compile_cost(pattern))
    found = compiled(pattern)
    spend(found.size)
    return found


def _overloads(prefix: str) -> tuple[Overload, ...]:
    pattern_of = _of_literal if prefix else _of_any

    def matches(spend: Spend, text: str, pattern: str) -> bool:
        found, encoded = pattern_of(spend, pattern), _encoded(text)
        spend(found.cost(len(encoded)))
        return found.regexp.search(encoded) is not None

    def find(spend: Spend, text: str, pattern: str) -> str:
        return next(iter(find_all(spend, text, pattern, 1)), "")

    def find_all(spend: Spend, text: str, pattern: str, count: int = -1) -> tuple[str, ...]:
        compiled_pattern, encoded = pattern_of(spend, pattern), _encoded(text)
        cost = compiled_pattern.cost(len(encoded))
        found: list[str] = []
        end = -1
        spend(cost)
        for match in compiled_pattern.regexp.finditer(encoded):
            if len(found) == count:
                break
            spend(cost + made(match.end() - match.start()))
            begin, before, end = match.start(), end, match.end()
            is_inner = begin < len(encoded) and encoded[begin] in _INNER
            if not is_inner and (begin, end) != (before, before):  # as Go
                found.append(match[0].decode("utf-8", "replace"))
        return tuple(found)

    texts = (STRING, STRING)
    forms: tuple[tuple[str, tuple[Type, ...], Type, Value], ...] = (
        ("matches", texts, BOOL, matches),
        ("find", texts, STRING, find),
        ("findAll", texts, list_of(STRING), find_all),
        ("findAll", (*texts, INT), list_of(STRING), find_all),
    )
    return (
        function(f"{prefix}matches", texts, BOOL, matches, spends=True),
        *(
            method(f"{prefix}{name}", parameters, result, implementation, spends=True)
            for name, parameters, result, implementation in forms
        ),
    )


OVERLOADS: Final = (*_overloads(""), *_overloads(LITERAL))
