"""How many examples a property of the engine is tried with, and which."""

from hypothesis import Phase, settings

from tests.length import is_longer, scaled


def examples(number: int) -> settings:
    """So many examples, the same in every run of the default length; longer runs look for new ones.

    A whole cluster takes minutes to shrink, in which the test would time out instead of saying what
    is wrong: the first example that fails is shown as it is.
    """
    return settings(
        max_examples=scaled(number),
        derandomize=not is_longer(),
        phases=(Phase.explicit, Phase.reuse, Phase.generate),
    )
