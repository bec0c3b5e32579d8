"""What is remembered of what is placed next is what it would be if it were found out again."""

from random import Random

import pytest

from controller.engine.decide.cycle import plan
from controller.engine.decide.gangs.next_chunks import NextChunks
from controller.engine.decide.gangs.order import asked_by
from controller.engine.decide.gangs.placement_unit import PlacementUnit, next_chunk
from controller.engine.model.group import Group
from controller.engine.model.reason import TooFewPods
from controller.engine.model.resource import Amounts
from tests.length import seeds
from tests.unit.controller.engine.properties.running_cluster import random_cluster

_CASES, _ROUNDS = 40, 4


def test_it_is_as_if_nothing_were_remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    first_of, first_asked = NextChunks.of, NextChunks.asked
    was_known: list[bool] = []
    wrong: list[str] = []  # what fails for one group does not end a plan

    def of(chunks: NextChunks, group: Group) -> PlacementUnit | TooFewPods | None:
        was_known.append(group.key in chunks._known)
        found = first_of(chunks, group)
        if found != next_chunk(chunks._occupancy, group):
            wrong.append(f"{group.key}: {found}")
        return found

    def asked(chunks: NextChunks, group: Group) -> Amounts:
        was_known.append(group.key in chunks._known)
        found, fresh = first_asked(chunks, group), next_chunk(chunks._occupancy, group)
        pods = asked_by(chunks._occupancy, fresh) if isinstance(fresh, PlacementUnit) else ()
        if any(pods) or any(found):
            wrong.extend([f"{group.key} asks for {found}"] if found != pods else [])
        return found

    monkeypatch.setattr(NextChunks, "of", of)
    monkeypatch.setattr(NextChunks, "asked", asked)
    for seed in seeds(_CASES):
        cluster = random_cluster(Random(seed), plan)
        for _ in range(_ROUNDS):
            cluster.apply(plan(cluster.snapshot()))
            cluster.pass_round()
    assert wrong == []
    assert set(was_known) == {True, False}
