"""Random nodes with random claims for them, to compare what is computed in two ways."""

from collections.abc import Iterator
from dataclasses import dataclass

from carina_dra.allocator.allocate import Allocated, Answer, allocate
from carina_dra.allocator.errors import AllocationError
from carina_dra.allocator.preference import Policy
from carina_dra.placement.choice.placer import PlacementRequest
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.node_offer import Offer
from carina_dra.placement.cluster.offer import PoolState
from tests.samples.followed_cluster import FollowedCluster

_EVENTS = 6


@dataclass(frozen=True, slots=True)
class Question:
    """Claims, and a node for which the answer of `allocate` is known."""

    cluster: Cluster
    node: str
    offer: Offer
    request: PlacementRequest
    policy: Policy
    answer: Answer | AllocationError

    @property
    def states(self) -> list[PoolState]:
        """The node's pools."""
        return [self.cluster.pool_state(pool) for pool in self.offer.ready]

    @property
    def allocated(self) -> Allocated | None:
        """The node's devices for the claims, if it has them."""
        return self.answer if isinstance(self.answer, Allocated) else None


def questions(seed: int, policy: Policy) -> Iterator[Question]:
    """Claims for every node of a random cluster, after each of some events."""
    followed = FollowedCluster(seed)
    for _ in range(_EVENTS):
        followed.objects.change()
        followed.follow()
        asked = followed.request()
        if asked is not None:
            for node in sorted(followed.cluster.nodes):
                yield _question(followed.cluster, node, asked[1], policy)


def _question(cluster: Cluster, node: str, request: PlacementRequest, policy: Policy) -> Question:
    answer: Answer | AllocationError
    try:
        state = cluster.state(node)
        answer = allocate(request.claims, state, new_share_id=lambda: "share", policy=policy)
    except AllocationError as error:
        answer = error
    return Question(cluster, node, cluster.offer(node), request, policy, answer)
