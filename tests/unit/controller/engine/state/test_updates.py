"""Updates of objects: what they change of a state, and what they leave as it was."""

from dataclasses import replace

from carina_dra.resource import ObjectMeta, ResourceClaim, ResourceClaimSpec
from controller.engine.model.plan import CarriedOver
from controller.engine.model.reason import NoRoom
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.small import group, node, pod, snapshot

_CLAIM = ResourceClaim(
    metadata=ObjectMeta(name="claim", namespace="team"), spec=ResourceClaimSpec()
)
_REASONS = (NoRoom("pod", 1, ()),)


def test_the_history_of_a_group_changes_nothing_on_its_nodes() -> None:
    runs = group("runs")
    state = State(snapshot(node("node", 2), runs, pod(runs, 2, at="node")))
    before = dict(state.occupancy.versions)
    state.put_group(replace(runs, started=990.0))
    assert state.occupancy.groups["team/runs"].started == 990.0
    assert state.occupancy.versions == before


def test_the_users_of_a_claim_change_nothing_on_the_nodes_of_its_pods() -> None:
    runs, claim = group("runs"), _CLAIM
    user = replace(pod(runs, 2, at="node"), claims=(claim.key,))
    state = State(replace(snapshot(node("node", 2), runs, user), claims=(claim,)))
    before = dict(state.occupancy.versions)
    labelled = replace(claim, metadata=replace(claim.metadata, labels={"app": "training"}))
    state.put_claim(labelled)
    assert state.occupancy.claims[claim.key] == labelled
    assert state.occupancy.versions == before


def test_a_claim_that_changes_has_only_the_groups_of_its_pods_ask_again() -> None:
    one, other, claim = group("one"), group("other"), _CLAIM
    user = replace(pod(one, 2), claims=(claim.key,))
    state = State(replace(snapshot(one, user, other, pod(other, 2)), claims=(claim,)))
    state.memory = CarriedOver(refusals={one.key: _REASONS, other.key: _REASONS})
    state.put_claim(replace(claim, metadata=replace(claim.metadata, labels={"app": "training"})))
    assert set(state.memory.refusals) == {other.key}
