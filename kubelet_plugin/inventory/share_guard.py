"""What carina-sharing does on the node for shares of a GPU: a plain value."""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class ShareGuard:
    """What carina-sharing does for shares of a GPU."""

    ends_violators: bool = False
    """Whether it ends processes that exceed the memory of their share of this GPU."""
    mps: bool = False
    """Whether it runs MPS daemons."""


UNGUARDED: Final = ShareGuard()
"""Also before carina-sharing is known to be there."""
