"""The state of a node that allocation depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate, Pool, ReadyPool
from carina_dra.allocator.usage import Usage


@dataclass(frozen=True)
class NodeState:
    """A node, its resource pools, and which of their devices are in use."""

    node: Node
    pools: Sequence[Pool]
    """In the order in which upstream tries them."""
    usage: Usage
    features: Features
    """The feature gates of the API server."""

    @cached_property
    def ready(self) -> tuple[ReadyPool, ...]:
        """The pools from which devices can be allocated."""
        return tuple(pool for pool in self.pools if isinstance(pool, ReadyPool))

    @cached_property
    def published(self) -> tuple[Candidate, ...]:
        """The devices in the order in which upstream tries them."""
        return tuple(candidate for pool in self.ready for candidate in pool.devices)
