"""Who may be evicted on each node, in which order, as pods come and go."""

from random import Random

import pytest

from controller.engine.decide.cycle import Engine
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.queues.eligibility import Eligibility
from controller.engine.decide.queues.shares import Shares
from controller.engine.decide.victims.groups_on_nodes import GroupsOnNodes, Rank
from controller.engine.decide.victims.victims import Victims
from controller.engine.model.group import Group
from controller.engine.model.plan import Action
from tests.unit.controller.engine.scene import NOW, Scene, evicted, only

_NODES = ("a", "b", "c")


def _crowded(seed: int) -> Trial:
    """Three nodes with groups of several pods, some of which may shrink."""
    dice, scene = Random(seed), Scene().queue("q")
    for name in _NODES:
        scene.node(name, 8)
    for number in range(8):
        nodes = [dice.choice(_NODES) for _ in range(dice.randint(1, 3))]
        least, priority = dice.randint(0, len(nodes)), dice.randint(0, 2)
        scene.runs(f"g{number}", *nodes, least=least, priority=priority)
    return scene.waits("new", priority=9).trial()


def _order(victims: Victims, trial: Trial, node: str) -> list[str]:
    group = trial.state.occupancy.groups["new"]
    asked = trial.state.occupancy.accounts.zero
    shares = Shares(trial.state)
    shares.refresh()
    eligibility = Eligibility(trial.state, shares, group, asked, Action.PREEMPT)
    return [each.key for each in victims.on_node(node, eligibility)]


@pytest.mark.parametrize("seed", range(20))
def test_the_order_is_that_of_a_first_look_whoever_has_gone_or_come_back(seed: int) -> None:
    trial, dice = _crowded(seed), Random(seed)
    victims = Victims(trial, GroupsOnNodes(trial, {"q": 0}))
    gone: list[tuple[str, str]] = []
    for _ in range(20):
        if gone and dice.random() < 0.3:
            key, node = gone.pop()
            trial.put_back(trial.state.occupancy.pods[key])
        else:
            key = dice.choice(sorted(trial.state.occupancy.holds))
            node = trial.state.occupancy.holds[key].node
            gone.append((key, node))
            trial.evict(trial.state.occupancy.pods[key], Action.PREEMPT, "new")
        first_look = _order(Victims(trial, GroupsOnNodes(trial, {"q": 0})), trial, node)
        assert _order(victims, trial, node) == first_look
        if not trial.state.occupancy.holds:
            break


def test_groups_are_ranked_once_for_all_who_ask(monkeypatch: pytest.MonkeyPatch) -> None:
    scene = Scene().queue("q").node("a", 8)
    for number in range(4):
        scene.runs(f"g{number}", "a", priority=number)
    trial = scene.waits("new", priority=9).trial()
    ranked: list[str] = []
    rank = GroupsOnNodes.rank

    def noted(groups: GroupsOnNodes, group: Group) -> Rank:
        ranked.append(group.key)
        return rank(groups, group)

    monkeypatch.setattr(GroupsOnNodes, "rank", noted)
    groups = GroupsOnNodes(trial, {"q": 0})
    first, second = (_order(Victims(trial, groups), trial, "a") for _ in range(2))
    assert first == second == ["g0", "g1", "g2", "g3"]
    assert ranked == ["g0", "g1", "g2", "g3"]


def test_whoever_has_borrowed_with_many_small_pods_gives_back_like_others() -> None:
    """Each node's GPUs are had by pods that share a claim: all of these have to go."""
    scene = Scene(**only(Action.RECLAIM), attempt_steps=4_000, attempt_steps_per_node=0)
    scene.queue("borrower", quota=0).queue("owner", quota=32)
    for node in range(4):
        scene.node(f"n{node}", 8).claim(f"c{node}", 8, f"n{node}")
        for number in range(60):
            key = f"t/b{node}-{number}"
            scene.group(key, "borrower")
            scene.pod(key, f"n{node}", gpus=0, claims=(f"c{node}",))
    state = scene.waits("t/owner", 4, gpus=8, queue="owner", created=NOW - 9).state()
    found: list[str] = []
    for _ in range(3):
        decided = Engine(state).decide()
        found += evicted(decided)
        state.memory = decided.memory
        state.advance(state.now + 60)
    assert len(set(found)) == 4 * 60
