"""What claims ask for is found out once for each template, and differs if what is asked differs."""

from dataclasses import replace
from typing import Any

import pytest

from carina_dra.placement.choice import placer
from carina_dra.resource import ObjectMeta, ResourceClaim, encode
from carina_dra.resource.schema import Struct
from carina_dra.step_budget import StepBudget
from controller.engine.decide.nodes.claim_requests import ClaimRequests
from controller.engine.state.state import State
from tests.samples.fleet import claim
from tests.unit.controller.engine.scene import Scene


def _of_template(spec_of: ResourceClaim, name: str) -> ResourceClaim:
    return replace(spec_of, metadata=ObjectMeta(name=name, namespace="team", uid=f"uid-{name}"))


def _key(requests: ClaimRequests, asked: ResourceClaim) -> str:
    found = requests.of((asked,), StepBudget.unlimited())
    assert isinstance(found, placer.PlacementRequest)
    return found.key


def test_claims_of_one_template_are_encoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    encoded: list[object] = []

    def noted(spec: Struct) -> dict[str, Any]:
        encoded.append(spec)
        return encode(spec)

    monkeypatch.setattr(placer, "encode", noted)
    requests, template = ClaimRequests(State(Scene().snapshot()).occupancy), claim()
    keys = {_key(requests, _of_template(template, f"c{number}")) for number in range(5)}
    assert len(keys) == 1
    assert len(encoded) == 2  # the spec of the claims, and that of their class


def test_keys_differ_if_what_is_asked_differs() -> None:
    requests = ClaimRequests(State(Scene().snapshot()).occupancy)
    one, two = claim(), claim(count=2)
    assert _key(requests, _of_template(one, "a")) != _key(requests, _of_template(two, "b"))
