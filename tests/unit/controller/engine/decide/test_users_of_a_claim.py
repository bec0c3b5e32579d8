"""A claim can be reserved for 256 users."""

from dataclasses import replace

from carina_dra.resource import ConsumerReference, ResourceClaimStatus
from controller.engine.model.group import PodSet
from tests.unit.controller.engine.scene import Scene, started


def _scene(users: int) -> Scene:
    scene = Scene(actions=()).node("n", 1).queue("q", quota=9).claim("shared", 1, "n")
    others = tuple(
        ConsumerReference(resource="pods", name=f"other-{index}", uid=f"other-{index}")
        for index in range(users)
    )
    held = scene.claims["shared"]
    status = ResourceClaimStatus(held.status.allocation, others)
    scene.claims["shared"] = replace(held, status=status)
    scene.group("gang", root=PodSet("", 3))
    for _ in range(3):
        scene.pod("gang", claims=("shared",))
    return scene


def test_a_gang_starts_of_which_all_can_be_users() -> None:
    assert len(started(_scene(253).plan())) == 3


def test_a_gang_waits_of_which_one_cannot_be() -> None:
    assert not started(_scene(254).plan())
