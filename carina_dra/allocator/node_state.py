"""What an allocator has to know of a node."""

from collections.abc import Sequence
from dataclasses import dataclass

from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Pool, ReadyPool
from carina_dra.allocator.usage import Usage


@dataclass(frozen=True, slots=True)
class NodeState:
    """A node, what it offers, and what is in use of that."""

    node: Node
    pools: Sequence[Pool]
    """In the order in which upstream tries them."""
    usage: Usage
    features: Features
    """Of the API: they decide what may be given out."""

    @property
    def ready(self) -> tuple[ReadyPool, ...]:
        """The pools from which devices may be given out now."""
        return tuple(pool for pool in self.pools if isinstance(pool, ReadyPool))
