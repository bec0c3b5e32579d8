"""A random cluster, and the state of it that placement keeps, event by event."""

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.node import Node
from carina_dra.placement.choice.placer import PlacementRequest
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    decode,
)
from tests.samples.feature_gates import FIELD_OF_GATE, features_of
from tests.samples.random_cluster import RandomCluster
from tests.samples.random_pools import Object


class FollowedCluster:
    """A random cluster, and the state that follows its events."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.objects = RandomCluster(self.random)
        self.features = features_of(
            gate
            for feature in self.objects.gates
            for gate in feature.split("+")
            if gate in FIELD_OF_GATE
        )
        self.cluster = Cluster(self.features)
        self._before = _Objects({}, {}, {}, {})
        self.follow()

    def follow(self) -> None:
        """Applies what has changed, in any order."""
        now = _Objects(
            dict(self.objects.nodes),
            dict(self.objects.slices),
            dict(self.objects.rules),
            dict(self.objects.claims),
        )
        changes = list(_changes(self._before, now))
        self.random.shuffle(changes)
        for change in changes:
            change.apply(self.cluster)
        self._before = now

    def fresh(self) -> Cluster:
        """A new cluster with the same objects, which come in another order."""
        cluster = Cluster(self.features)
        changes = list(_changes(_Objects({}, {}, {}, {}), self._before))
        self.random.shuffle(changes)
        for change in changes:
            change.apply(cluster)
        return cluster

    def request(self) -> tuple[list[Object], PlacementRequest] | None:
        """New claims; None if they are not valid."""
        claims = self.objects.ask()
        classes = [decode(DeviceClass, body) for body in self.objects.classes]
        try:
            return claims, PlacementRequest.of(
                [decode(ResourceClaim, claim) for claim in claims],
                {known.metadata.name: known for known in classes},
                self.features,
            )
        except AllocationError:
            return None


@dataclass(frozen=True, slots=True)
class _Objects:
    nodes: dict[str, Object]
    slices: dict[str, Object]
    rules: dict[str, Object]
    claims: dict[str, Object]


@dataclass(frozen=True, slots=True)
class _Change:
    """An object with its new body; none if it is gone."""

    kind: str
    name: str
    body: Object | None

    def apply(self, cluster: Cluster) -> None:
        """Tells the cluster."""
        match self.kind, self.body:
            case "nodes", None:
                cluster.remove_node(self.name)
            case "slices", None:
                cluster.remove_slice(self.name)
            case "rules", None:
                cluster.remove_rule(self.name)
            case "claims", None:
                cluster.release(f"default/{self.name}")
            case "nodes", body if body:
                cluster.put_node(Node.of(body))
            case "slices", body if body:
                cluster.put_slice(decode(ResourceSlice, body))
            case "rules", body if body:
                cluster.put_rule(decode(DeviceTaintRule, body))
            case "claims", body if body:
                cluster.put_claim(decode(ResourceClaim, body))


def _changes(before: _Objects, now: _Objects) -> Iterator[_Change]:
    for kind in ("nodes", "slices", "rules", "claims"):
        old, new = getattr(before, kind), getattr(now, kind)
        for name in sorted(old.keys() | new.keys()):
            if old.get(name) != new.get(name):
                yield _Change(kind, name, new.get(name))
