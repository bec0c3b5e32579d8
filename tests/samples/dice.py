"""Random choices in the words of a generator, from a seeded source."""

from random import Random
from typing import TypeVar

T = TypeVar("T")


class Dice:
    """The choices of a generator. Equal seeds give equal choices."""

    def __init__(self, random: Random) -> None:
        self.random = random

    def chance(self, part: float) -> bool:
        """True for this part of all cases."""
        return self.random.random() < part

    def one_of(self, *choices: T) -> T:
        """One of the choices; a choice given twice is twice as likely."""
        return self.random.choice(choices)

    def between(self, least: int, most: int) -> int:
        """A number of this range, bounds included."""
        return self.random.randint(least, most)

    def some(self, of: list[T], least: int = 1) -> list[T]:
        """At least `least` of these, in any order."""
        return self.random.sample(of, self.random.randint(least, len(of)))
