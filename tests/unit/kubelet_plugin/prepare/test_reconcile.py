"""The steps that lead from what is there to what is wanted."""

from collections.abc import Collection

import pytest

from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.prepare.reconcile import plan, reconcile
from kubelet_plugin.prepare.resource import ResourceError
from tests.samples.claims import allocated, claim
from tests.samples.resource_failures import BUSY
from tests.unit.kubelet_plugin.prepare.made_up_kinds import MadeUpNode, identities, wanted


def node_with(claims: Collection[NodeClaim]) -> MadeUpNode:
    node = MadeUpNode()
    resources = wanted(list(claims))
    reconcile(node, resources.keys(), resources)
    return node


def test_kinds_are_made_in_order_and_removed_in_the_opposite_order() -> None:
    old = claim(allocated("gpu-0"))
    new = wanted([claim(allocated("gpu-1", "a"), allocated("gpu-2", "b"), uid="new")])
    steps = plan(MadeUpNode().kinds, {*identities(old), *new}, new)
    assert [identity.kind for identity in steps.remove] == ["file", "part", "mode"]
    assert [resource.identity.kind for resource in steps.make] == [
        *("mode", "mode"),
        *("part", "part"),
        "file",
    ]


def test_only_what_is_concerned_is_touched() -> None:
    one, two = claim(uid="one"), claim(allocated("gpu-1"), uid="two")
    node = node_with([one, two])
    reconcile(node, identities(one), {})
    node.assert_holds([two])


def test_what_exists_only_afterwards_reaches_what_needs_it() -> None:
    prepared = claim(allocated("gpu-0", "a"), allocated("gpu-1", "b"))
    node = node_with([prepared])
    assert node.files[prepared.uid] == (prepared.reference, (1, 2))


def test_what_cannot_be_removed_keeps_what_it_may_need_and_nothing_else() -> None:
    prepared = claim(allocated("gpu-0", "a"), allocated("gpu-1", "b"))
    node = node_with([prepared])
    calls = 0

    def trouble() -> None:
        nonlocal calls
        calls += 1
        if calls == 3:  # before the first part: a file takes two steps
            raise ResourceError(BUSY)

    node.trouble = trouble
    with pytest.raises(ResourceError, match="uses the GPU"):
        reconcile(node, identities(prepared), {})
    assert {identity.kind for identity in node.observe()} == {"part", "mode"}
    assert len(node.parts) == 1
    assert node.modes == {"gpu-0", "gpu-1"}


def test_nothing_is_made_of_a_plan_that_cannot_be_cleared_first() -> None:
    old, new = claim(uid="old"), claim(allocated("gpu-1"), uid="new")
    node = node_with([old])

    def trouble() -> None:
        raise ResourceError(BUSY)

    node.trouble = trouble
    with pytest.raises(ResourceError):
        reconcile(node, identities(old) | identities(new), wanted([new]))
    node.assert_holds([old])
