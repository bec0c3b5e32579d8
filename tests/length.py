"""How long tests of random sequences run: a factor for all of them.

CARINA_TEST_LENGTH=0.1 makes them a tenth as long, for the inner loop, and 10 ten times as long.
Time limits follow from the scaled numbers, so a longer run needs no other limit.
"""

import os

_VARIABLE = "CARINA_TEST_LENGTH"


def scaled(number: int) -> int:
    """Returns how many repetitions a test does that does `number` by default; at least one.

    Raises:
        ValueError: the environment's factor is not a positive number.
    """
    return max(1, round(number * _factor()))


def is_longer() -> bool:
    """Whether tests run longer than by default.

    Raises:
        ValueError: the environment's factor is not a positive number.
    """
    return _factor() > 1


def _factor() -> float:
    text = os.environ.get(_VARIABLE, "1")
    try:
        factor = float(text)
    except ValueError:
        factor = 0.0
    if not 0 < factor < float("inf"):
        raise ValueError(f"{_VARIABLE}={text} is not a positive number; 1 is the default")
    return factor
