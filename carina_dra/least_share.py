"""The least share: what a partition or a share of a GPU counts at least, a setting of its node.

It is published as a fraction such as `1/7`, which has no exact decimals.
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
