"""From watched objects to the state of a cluster.

    cluster = Cluster()
    feed = Feed(cluster)
    feed.put(published)     # a ResourceSlice was created or updated
    feed.remove(published)  # it was deleted; any version of it does

The changes of one object come in their order. Objects that refer to each other come in any order:
a claim's allocation may precede the slice with its devices, and a slice its node. Watches of
different resources are independent, and so is the order of their events.

The first lists are best fed in one pause of Python's garbage collector, and exempt from it later:
`carina_dra.kube.collector_pause.collector_paused(freeze=True)`.

A feed is used by one thread at a time. Watches that run in threads of their own share a lock or a
queue.
"""

from collections.abc import Mapping
from typing import TypeAlias, assert_never

from carina_dra.allocator.node import Node
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice

WatchedObject: TypeAlias = Node | ResourceSlice | ResourceClaim | DeviceTaintRule | DeviceClass
"""What placement depends on. `Node.of` reads a node, `decode` the others."""


class Feed:
    """Applies changes of objects to a cluster, and keeps the device classes."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self._classes: dict[str, DeviceClass] = {}

    @property
    def classes(self) -> Mapping[str, DeviceClass]:
        """The device classes by name, as `PlacementRequest.of` needs them."""
        return self._classes

    def put(self, watched: WatchedObject) -> None:
        """Applies that an object was created or updated; the same object again changes nothing."""
        match watched:
            case Node():
                self._cluster.put_node(watched)
            case ResourceSlice():
                self._cluster.put_slice(watched)
            case ResourceClaim():
                self._cluster.put_claim(watched)
            case DeviceTaintRule():
                self._cluster.put_rule(watched)
            case DeviceClass():
                self._classes[watched.metadata.name] = watched
            case _:
                assert_never(watched)

    def remove(self, watched: WatchedObject) -> None:
        """Applies that an object was deleted; an object that is not known changes nothing."""
        match watched:
            case Node():
                self._cluster.remove_node(watched.name)
            case ResourceSlice():
                self._cluster.remove_slice(watched.metadata.name)
            case ResourceClaim():
                self._cluster.release(watched.key)
            case DeviceTaintRule():
                self._cluster.remove_rule(watched.metadata.name)
            case DeviceClass():
                self._classes.pop(watched.metadata.name, None)
            case _:
                assert_never(watched)
