"""What a pod asks of a node, as far as it matters to how full nodes get."""

from typing import NamedTuple


class Wish(NamedTuple):
    """Cpu and memory, and devices or equal parts of them."""

    cpu: int
    """In milli-CPU."""
    memory: int
    """In bytes."""
    devices: int
    part: int
    """Of each device, in millionths."""


class TypicalWish(NamedTuple):
    """A wish as the cluster is typically asked for."""

    weight: int
    wish: Wish
