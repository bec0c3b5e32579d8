"""The least share: the least part of a GPU that can be requested, a setting of its node.

A share has at least this part of the memory and cores of its GPU, and a partition or a share counts
at least this part in queues. So nobody withholds a GPU with a request for 1 % of it. The
least share is published as a fraction such as `1/7`, which has no exact decimals.
"""

import re
from fractions import Fraction
from typing import Final

LEAST_SHARE: Final = "leastShare"
"""The name of the attribute, in the domain of the driver."""
DEFAULT_LEAST_SHARE: Final = Fraction(1, 10)
"""Also of devices that do not say it, such as those of NVIDIA's DRA driver."""

LEAST: Final = Fraction(1, 1000)
NUMBER: Final = re.compile(r"[0-9]{1,4}(/[0-9]{1,4}|\.[0-9]{1,3})?")


def parse_least_share(text: str) -> Fraction:
    """Reads a fraction or a decimal, such as `1/7` or `0.1`, exactly.

    Raises:
        ValueError: the text is neither, or not in the range.
    """
    try:
        share = Fraction(text) if NUMBER.fullmatch(text) else None
    except ZeroDivisionError:
        share = None
    if share is None or not LEAST <= share <= 1:
        raise ValueError(
            f"must be a fraction from {LEAST} to 1, such as 1/7 (at most four digits each), or a "
            "decimal such as 0.1 (at most three places)"
        )
    return share


def least_amount(steps: int, share: Fraction) -> int:
    """Returns the least amount that a share has of a capacity, in its steps, which are 2 or more.

    It is rounded down, so that ten shares of a tenth fit. It is at least one step, and at most all
    but one, since the API server requires a range.
    """
    return min(max(1, int(steps * share)), steps - 1)
