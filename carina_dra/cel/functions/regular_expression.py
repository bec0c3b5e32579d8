"""Regular expressions of RE2, which take time linear in the length of the text.

A selector is written by a tenant and evaluated for each device of a cluster, so the time must be
bounded for every pattern.
"""

from functools import lru_cache
from typing import Final

import re2

from carina_dra.cel.errors import EvaluationError

_MAX_MEMORY: Final = 8 << 20


@lru_cache(maxsize=512)
def compiled(pattern: str) -> "re2._Regexp":
    """A compiled pattern.

    Raises:
        EvaluationError: the pattern is invalid.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise EvaluationError(f"error parsing regexp: {error}") from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern matches any part of the text.

    Raises:
        EvaluationError: the pattern is invalid, or the text is not Unicode.
    """
    try:
        return compiled(pattern).search(text) is not None
    except UnicodeError:
        raise EvaluationError("the text is not Unicode") from None
