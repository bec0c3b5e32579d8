"""Gangs whose pods are of different sizes."""

from controller.engine.decide.cycle import plan
from tests.unit.controller.engine.decide.small import group, node, places, pod, snapshot


def test_a_gang_of_unlike_pods_starts_where_only_the_largest_first_has_room() -> None:
    gang = group("gang", least=3)
    sizes = (1, 2, 2)
    pods = [pod(gang, size, rank=rank) for rank, size in enumerate(sizes)]
    decided = plan(snapshot(node("large", 3), node("small", 2), gang, *pods))
    assert places(decided) == {
        "team/gang-0": "large",
        "team/gang-1": "small",
        "team/gang-2": "large",
    }
