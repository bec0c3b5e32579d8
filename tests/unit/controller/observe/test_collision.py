"""Who keeps a device that was given to two claims."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from carina_dra.resource import ResourceClaim, decode
from controller.observe.collision import Collisions, Holder
from tests.unit.controller.bodies import claim_body
from tests.unit.controller.scene import gpus_of

OTHERS, OURS, NOBODY = Holder.OTHERS, Holder.OURS, Holder.NOBODY


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
    found = collisions.found(lambda key: holders[key.removeprefix("t/")][0])
    assert [(each.keeper, each.loser) for each in found] == [
        (f"t/{keeper}", f"t/{loser}") for keeper, loser in expected
    ]


def test_a_device_that_one_claim_has_left_is_no_matter() -> None:
    collisions = Collisions()
    collisions.put(claim("a", 0))
    collisions.put(claim("b", 1))
    collisions.put(decode(ResourceClaim, claim_body("b")))
    assert list(collisions.found(lambda _: OURS)) == []


def test_a_claim_that_has_a_device_twice_can_go() -> None:
    collisions = Collisions()
    twice = decode(ResourceClaim, claim_body("a", allocation=gpus_of("n1", 0, 0)))
    collisions.put(twice)
    assert list(collisions.found(lambda _: OURS)) == []
    collisions.remove(twice.key)
