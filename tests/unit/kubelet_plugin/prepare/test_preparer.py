"""What is on the node and no claim needs, whatever kinds there are."""

import pytest

from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.claims.lifecycle import Leftover
from kubelet_plugin.prepare.preparer import Preparer
from kubelet_plugin.prepare.resource import Identity
from tests.samples.claims import allocated, claim
from tests.unit.kubelet_plugin.prepare.made_up_kinds import (
    MadeUpNode,
    Resource,
    Serial,
    identities,
    wanted,
)

MINE = claim(allocated("gpu-0"), uid="mine")
OTHER = claim(allocated("gpu-1"), uid="other")


def preparer(node: MadeUpNode, *made: NodeClaim) -> Preparer[Resource, Serial]:
    preparer = Preparer(
        node,
        identities=identities,
        wanted=lambda claims, _: wanted(claims),
        answer=lambda _: (),
    )
    preparer.reconcile(made, {claim.uid: claim for claim in made})
    return preparer


def test_what_the_claims_on_other_gpus_need_is_not_asked_for() -> None:
    asked = []

    def recorded(claim: NodeClaim) -> frozenset[Identity]:
        asked.append(claim)
        return identities(claim)

    beside = claim(allocated("gpu-0", share_id="two"), uid="beside")
    node = Preparer(MadeUpNode(), identities=recorded, wanted=lambda *_: {}, answer=lambda _: ())
    node.reconcile((MINE,), {one.uid: one for one in (OTHER, beside)})

    assert asked == [MINE, beside]


def test_leftovers_come_in_the_order_of_removing() -> None:
    leftovers = preparer(MadeUpNode(), MINE, OTHER).leftovers((OTHER,))
    assert leftovers == (
        Leftover("file", "mine", ""),
        Leftover("part", "gpu-0/all", "gpu-0"),
        Leftover("mode", "gpu-0", "gpu-0"),
    )


@pytest.mark.parametrize(("live", "needed"), [((MINE,), True), ((OTHER,), False), ((), False)])
def test_a_leftover_is_needed_while_a_live_claim_needs_it(
    live: tuple[NodeClaim, ...], needed: bool
) -> None:
    assert preparer(MadeUpNode()).is_needed(Leftover("file", "mine", ""), live) is needed
