"""The state of a node that allocation depends on."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Final

from carina_dra.allocator.features import Features
from carina_dra.allocator.node import Node
from carina_dra.allocator.pool import Candidate, Pool, ReadyPool
from carina_dra.allocator.usage import Usage

_OPTIONAL_NODE_OPERATIONS: Final = "DRAOptionalNodeOperations"


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

    def supports(self, candidate: Candidate) -> bool:
        """Whether the API server and the node know what the device's fields ask of them."""
        if candidate.device.consumes_counters and not self.features.partitionable_devices:
            return False
        # Without any alpha feature the field is not known: everything is prepared.
        if not candidate.slice.skip_node_operations or not self.features.any_alpha:
            return True
        return (
            self.features.optional_node_operations
            and _OPTIONAL_NODE_OPERATIONS in self.node.declared_features
        )

    def is_shareable(self, candidate: Candidate) -> bool:
        """Whether claims get shares of the device, not the whole device."""
        return self.features.consumable_capacity and bool(
            candidate.device.allow_multiple_allocations
        )
