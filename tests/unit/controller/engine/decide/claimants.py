"""Claimants for tests: one by what matters of it, and random ones."""

from dataclasses import replace
from fractions import Fraction

from hypothesis import strategies as st

from controller.engine.decide.queues.fair_share import Claimant


def claimant(
    name: str = "q",
    request: int = 100,
    *,
    quota: int | None = 0,
    limit: int | None = None,
    weight: int | Fraction = 1,
    priority: int = 0,
    age: int = 0,
    usage: int | Fraction = 0,
) -> Claimant:
    """A queue without quota and limit that wants more than there is."""
    return Claimant(name, priority, age, quota, limit, weight, request, usage)


_amounts = st.integers(0, 30)
_weights = st.sampled_from([0, 1, 1, 2, 3, 7, 9, Fraction(1, 3), Fraction(5, 2)])
_usages = st.integers(0, 8).map(lambda eighths: Fraction(eighths, 8))
_unnamed = st.builds(
    claimant,
    request=_amounts,
    quota=st.just(0) | _amounts | st.none(),
    limit=st.none() | _amounts,
    weight=_weights,
    priority=st.integers(0, 1),
    age=st.integers(0, 2),
    usage=_usages,
)

totals = st.integers(0, 60)
units = st.sampled_from([1, 1, 4])
ks = st.sampled_from([0, Fraction(1, 2), 2])


@st.composite
def siblings(draw: st.DrawFn, *, least: int = 0) -> list[Claimant]:
    """Up to six siblings of two priorities, of few ages, so that all ties occur."""
    drawn = draw(st.lists(_unnamed, min_size=least, max_size=6))
    return [replace(queue, name=f"q{number}") for number, queue in enumerate(drawn)]
