"""Whether an allocation is in effect, and where it can be used."""

from dataclasses import replace

import pytest

from carina_dra.kube.body import Body
from carina_dra.resource import (
    DecodeError,
    NodeSelector,
    NodeSelectorOperator,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    ResourceClaim,
    decode,
)
from controller.observe.claim import is_reserved, is_tentative, node_of, read_claim
from tests.unit.controller.bodies import claim_body
from tests.unit.controller.engine.scene import gpus_of

HELD = {"uid-held"}
GIVEN = gpus_of("n1", 0)


@pytest.mark.parametrize(
    ("reserved_for", "tentative"),
    [
        ([], True),
        (["held"], True),
        (["runs"], False),
        (["held", "runs"], False),
    ],
)
def test_an_allocation_for_pods_that_the_gate_holds_is_tentative(
    reserved_for: list[str], tentative: bool
) -> None:
    body = claim_body("c", allocation=GIVEN, reserved_for=reserved_for)
    assert is_tentative(decode(ResourceClaim, body), HELD) is tentative


def test_a_claim_without_devices_has_nothing_tentative() -> None:
    assert not is_tentative(decode(ResourceClaim, claim_body("c")), HELD)


@pytest.mark.parametrize(
    "consumer",
    [
        {"apiGroup": "scheduling.carina.dev", "resource": "reservations"},
        {"resource": "nodes"},
        {"apiGroup": "example.com", "resource": "pods"},
    ],
)
def test_a_reservation_of_another_kind_is_in_effect(consumer: Body) -> None:
    body = claim_body("c", allocation=GIVEN)
    body["status"]["reservedFor"] = [{**consumer, "name": "held", "uid": "uid-held"}]
    assert not is_tentative(decode(ResourceClaim, body), HELD)


def test_devices_of_one_node_have_that_node() -> None:
    assert node_of(gpus_of("n1", 0)) == "n1"


def _named(operator: NodeSelectorOperator, *names: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(
        match_fields=(NodeSelectorRequirement("metadata.name", operator, names),)
    )


@pytest.mark.parametrize(
    "terms",
    [
        (_named(NodeSelectorOperator.NOT_IN, "n1"),),
        (_named(NodeSelectorOperator.IN, "n1", "n2"),),
        (_named(NodeSelectorOperator.IN, "n1"), NodeSelectorTerm()),
        (_named(NodeSelectorOperator.IN, "n1"), _named(NodeSelectorOperator.IN, "n2")),
    ],
    ids=["all but one", "two names", "by name or otherwise", "two terms"],
)
def test_devices_of_several_nodes_have_none(terms: tuple[NodeSelectorTerm, ...]) -> None:
    assert node_of(replace(GIVEN, node_selector=NodeSelector(terms))) is None


def test_a_reservation_of_another_api_group_is_not_the_controller_s() -> None:
    body = claim_body("c", allocation=GIVEN)
    other = {"apiGroup": "example.com", "resource": "reservations", "name": "c", "uid": "u"}
    body["status"]["reservedFor"] = [other]
    assert not is_reserved(decode(ResourceClaim, body))


def test_a_claim_whose_spec_cannot_be_read_keeps_its_devices() -> None:
    body = claim_body("c", allocation=GIVEN)
    body["spec"]["devices"]["requests"] = [{"name": "gpus", "exactly": {"allocationMode": "New"}}]
    assert read_claim(body).status.allocation == GIVEN
    with pytest.raises(DecodeError):
        read_claim({**body, "status": {}})
