"""How many examples a property of the engine is tried with, and which."""

from hypothesis import Phase, settings


def examples(number: int) -> settings:
    """So many examples at full length, see `tests.length`.

    A whole cluster takes minutes to shrink, in which the test would time out instead of saying what
    is wrong: the first example that fails is shown as it is.
    """
    return settings(
        max_examples=number,
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
