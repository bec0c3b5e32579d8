"""Regular expressions: RE2's, which take time by the length of the text, whatever the pattern.

A selector is what a tenant wrote, and is run for each device of a cluster.
"""

from functools import lru_cache
from typing import Final

import re2

from carina_dra.cel.errors import EvaluationError

_MAX_MEMORY: Final = 8 << 20


@lru_cache(maxsize=512)
def compiled(pattern: str) -> "re2._Regexp":
    """A pattern, ready to be looked for.

    Raises:
        EvaluationError: it is none.
    """
    options = re2.Options()
    options.log_errors = False
    options.max_mem = _MAX_MEMORY
    try:
        return re2.compile(pattern, options)
    except (re2.error, UnicodeError) as error:
        raise EvaluationError(f"error parsing regexp: {error}") from None


def matches(text: str, pattern: str) -> bool:
    """Whether the pattern is found anywhere in the text.

    Raises:
        EvaluationError: it is no pattern.
    """
    try:
        return compiled(pattern).search(text) is not None
    except UnicodeError:
        raise EvaluationError("the text is not Unicode") from None
