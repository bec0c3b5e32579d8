"""The keys by which people, the controller and the plugin of a driver agree on a Node."""

from dataclasses import dataclass
from typing import Final

EVICT_ALL: Final = "all"
"""The value of `release_evict`."""


@dataclass(frozen=True, slots=True)
class NodeKeys:
    """The keys of a driver. Two drivers on a node share none."""

    driver: str

    @property
    def release(self) -> str:
        """On a Node: why its GPUs are released. Without it, they are in service."""
        return f"{self.driver}/release"

    @property
    def release_evict(self) -> str:
        """On a Node that is released, `all`: pods without a queue are evicted, too."""
        return f"{self.driver}/release-evict"

    @property
    def release_phase(self) -> str:
        """On a Node, by the plugin: `draining`, `released` or `restoring`."""
        return f"{self.driver}/release-phase"

    @property
    def faults_cleared(self) -> str:
        """On a Node: a JSON object from UUIDs of GPUs to times in RFC 3339; earlier faults of these
        GPUs no longer count."""
        return f"{self.driver}/faults-cleared"

    @property
    def released_condition(self) -> str:
        """On a Node, by the plugin: whether it has nothing of the NVIDIA driver open."""
        return f"{self.driver}/Released"

    @property
    def released_taint(self) -> str:
        """The node's GPUs are released, or will be."""
        return f"{self.driver}/released"
