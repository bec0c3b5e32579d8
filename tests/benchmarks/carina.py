"""Carina's allocator on a fleet."""

import itertools
from typing import Final

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.placement.choice.placer import PlacedClaims, Placement, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import DeviceClass, ResourceClaim, ResourceSlice, decode
from tests.benchmarks.fleet import CLASSES, Kind, Page, Pod, key_of
from tests.benchmarks.stopwatch import cpu_ms

DEFAULT_POLICY: Final = Policy()


class Carina:
    """A cluster's state, and decisions on it."""

    def __init__(self, policy: Policy = DEFAULT_POLICY) -> None:
        self.cluster = Cluster()
        self.classes = {each["metadata"]["name"]: decode(DeviceClass, each) for each in CLASSES}
        self.load_s = 0.0
        """How long objects took to become the cluster's state."""
        shares = itertools.count()
        self._placer = Placer(self.cluster, policy, new_share_id=lambda: f"new-{next(shares)}")

    def add(self, page: Page) -> None:
        """Adds objects, which are parsed JSON."""
        begun = cpu_ms()
        match page.kind:
            case Kind.NODES:
                for node in page.objects:
                    self.cluster.put_node(Node.of(node))
            case Kind.SLICES:
                for published in page.objects:
                    self.cluster.put_slice(decode(ResourceSlice, published))
            case Kind.IN_USE:
                for claim in page.objects:
                    self.cluster.put_claim(decode(ResourceClaim, claim))
        self.load_s += (cpu_ms() - begun) / 1000

    def request(self, pod: Pod) -> PlacementRequest:
        """The request of a pod, from the JSON of its claims on."""
        claims = [decode(ResourceClaim, claim) for claim in pod]
        return PlacementRequest.of(claims, self.classes, self.cluster.features)

    def place(self, pod: Pod) -> Placement:
        """Finds the best node for a pod."""
        return self._placer.place(self.request(pod))

    def give(self, pod: Pod) -> list[str]:
        """Gives a pod its devices; returns the keys of its claims, none if there is no place."""
        placement = self.place(pod)
        if not isinstance(placement, PlacedClaims):
            return []
        keys = [key_of(claim) for claim in pod]
        for key, allocation in zip(keys, placement.allocated.allocations, strict=True):
            self.cluster.allocate(key, allocation)
        return keys
