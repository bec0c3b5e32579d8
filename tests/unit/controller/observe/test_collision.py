"""Who keeps a device that was given to two claims."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from carina_dra.resource import ResourceClaim, decode
from controller.observe.collision import Collision, Collisions, Holder
from tests.unit.controller.bodies import claim_body
from tests.unit.controller.engine.scene import gpus_of

OTHERS, OURS, NOBODY = Holder.OTHERS, Holder.OURS, Holder.NOBODY


def found(collisions: Collisions, holder_of: Callable[[str], Holder]) -> list[Collision]:
    return [each for at in collisions.contested for each in collisions.at(at, holder_of)]


def claim(name: str, second: int) -> ResourceClaim:
    """A claim with the same device as all others, allocated in some second."""
    stamp = datetime(2026, 1, 1, 0, 0, second, tzinfo=UTC)
    allocation = replace(gpus_of("n1", 0), allocation_timestamp=stamp)
    return decode(ResourceClaim, claim_body(name, allocation=allocation))


@pytest.mark.parametrize(
    ("holders", "expected"),
    [
        pytest.param({"a": (OURS, 0), "b": (OTHERS, 5)}, [("b", "a")], id="others keep"),
        pytest.param({"a": (OURS, 5), "b": (OURS, 0)}, [("b", "a")], id="first of ours keeps"),
        pytest.param({"b": (OURS, 1), "a": (OURS, 1)}, [("a", "b")], id="then by name"),
        pytest.param({"a": (OTHERS, 0), "b": (OTHERS, 1)}, [], id="not our business"),
        pytest.param({"a": (NOBODY, 0), "b": (OURS, 1)}, [], id="not in effect"),
        pytest.param(
            {"a": (OURS, 0), "b": (OTHERS, 2), "c": (OURS, 1)},
            [("b", "a"), ("b", "c")],
            id="each loser",
        ),
    ],
)
def test_who_keeps_a_device(
    holders: Mapping[str, tuple[Holder, int]], expected: list[tuple[str, str]]
) -> None:
    collisions = Collisions()
    for name, (_, second) in holders.items():
        collisions.put(claim(name, second))
    losses = found(collisions, lambda key: holders[key.removeprefix("t/")][0])
    assert [(each.keeper, each.loser) for each in losses] == [
        (f"t/{keeper}", f"t/{loser}") for keeper, loser in expected
    ]


def test_a_device_that_one_claim_has_left_is_no_matter() -> None:
    collisions = Collisions()
    collisions.put(claim("a", 0))
    collisions.put(claim("b", 1))
    collisions.put(decode(ResourceClaim, claim_body("b")))
    assert found(collisions, lambda _: OURS) == []


def test_a_claim_that_has_a_device_twice_can_go() -> None:
    collisions = Collisions()
    twice = decode(ResourceClaim, claim_body("a", allocation=gpus_of("n1", 0, 0)))
    collisions.put(twice)
    assert found(collisions, lambda _: OURS) == []
    collisions.remove(twice.key)


@pytest.mark.parametrize("shared", [{"admin_access": True}, {"share_id": "a-share"}])
def test_who_watches_or_shares_a_device_takes_it_from_nobody(shared: dict[str, Any]) -> None:
    given = gpus_of("n1", 0)
    results = tuple(replace(result, **shared) for result in given.devices.results)
    allocation = replace(given, devices=replace(given.devices, results=results))
    collisions = Collisions()
    collisions.put(claim("a", 0))
    collisions.put(decode(ResourceClaim, claim_body("b", allocation=allocation)))
    assert found(collisions, lambda _: OURS) == []


def test_two_claims_still_have_a_device_that_a_third_has_left() -> None:
    collisions = Collisions()
    for second, name in enumerate("abc"):
        collisions.put(claim(name, second))
    collisions.remove("t/a")
    assert [each.loser for each in found(collisions, lambda _: OURS)] == ["t/c"]
