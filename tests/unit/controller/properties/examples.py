"""How many examples a property of the engine is tried with, and which."""

from hypothesis import settings

from tests.length import is_longer, scaled


def examples(number: int) -> settings:
    """So many examples, the same in every run of the default length; longer runs look for new ones.

    A whole cluster takes minutes to shrink, so what fails in CI should be what was changed.
    """
    return settings(max_examples=scaled(number), derandomize=not is_longer())
