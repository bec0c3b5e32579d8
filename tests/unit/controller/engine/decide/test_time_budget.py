"""A cycle whose time is up plans what it has decided, and the next ones go on."""

from collections.abc import Callable
from dataclasses import replace
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.resource import CelSelector, DeviceSelector
from controller.engine.decide.cycle import Engine, plan
from controller.engine.model.group import Group
from controller.engine.model.node import ClusterNode
from controller.engine.model.plan import Plan
from controller.engine.model.pod import Ended, Placed, Pod
from controller.engine.model.queue import Queue
from controller.engine.model.snapshot import EngineSettings
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.small import group, node, pod, queue, snapshot
from tests.unit.controller.engine.decide.test_search_that_is_cut import SNAPSHOT
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.properties.rules import violations
from tests.unit.controller.engine.properties.running_cluster import random_cluster
from tests.unit.controller.engine.scene import Scene, gpu_claim


def looks(number: int) -> Callable[[], float]:
    """Time that is up when it has been looked at so often."""
    count = 0

    def spent() -> float:
        nonlocal count
        count += 1
        return count / (number + 1)

    return spent


class Cluster:
    """A cluster in which plans are followed at once, decided with little time."""

    def __init__(self, *of: ClusterNode | Queue | Group | Pod, looks: int = 3) -> None:
        self.state = State(snapshot(*of))
        self._engine = Engine(self.state)
        self.looks = looks
        self.started: list[str] = []
        self.evicted: list[str] = []

    def cycle(self) -> Plan:
        decided = self._engine.decide(looks(self.looks))
        self.state.memory = decided.memory
        for start in decided.starts:
            self.state.put_pod(
                replace(self.state.occupancy.pods[start.pod], state=Placed(start.node))
            )
            self.started.append(start.pod)
        for eviction in decided.evictions:
            gone = replace(self.state.occupancy.pods[eviction.pod], state=Ended(succeeded=False))
            self.state.put_pod(gone)
            self.evicted.append(eviction.pod)
        return decided

    def change(self) -> None:
        """Something changes that may help anybody."""
        self.state.put_node(node("other", 1))
        self.state.remove_node("other")


def _startable(number: int) -> list[Group | Pod]:
    groups = [group(f"g{index}", age=number - index) for index in range(number)]
    return [*groups, *(pod(one, 1) for one in groups)]


def _refused(number: int) -> list[Group | Pod]:
    """Groups for which no node is large enough, the oldest of all."""
    groups = [group(f"large{index:03}", age=1000) for index in range(number)]
    return [*groups, *(pod(one, 90 + index) for index, one in enumerate(groups))]


def test_what_is_decided_when_time_is_up_is_the_plan() -> None:
    cluster = Cluster(node("node", 8), *_startable(8), looks=8)
    decided = cluster.cycle()
    assert decided.is_unfinished
    assert 0 < len(decided.starts) < 8
    assert [start.pod for start in decided.starts] == [
        f"team/g{index}-0" for index in range(len(decided.starts))
    ]


def test_groups_that_were_not_asked_are_not_said_to_wait_for_anything() -> None:
    decided = Cluster(node("node", 1), *_refused(8), looks=4).cycle()
    assert decided.is_unfinished
    assert len(decided.waiting) < 8
    assert decided.memory.refusals == {}


def test_the_next_cycles_go_on_until_all_have_been_asked() -> None:
    cluster = Cluster(node("node", 8), *_startable(8), *_refused(8))
    decided = cluster.cycle()
    for _ in range(30):
        decided = cluster.cycle()
    assert not decided.is_unfinished
    assert sorted(cluster.started) == [f"team/g{index}-0" for index in range(8)]
    whole = plan(cluster.state.snapshot())
    assert decided.memory.refusals.keys() == whole.waiting.keys()


def test_groups_keep_their_reasons_until_they_have_been_asked_again() -> None:
    cluster = Cluster(node("node", 1), *_refused(8), looks=100_000)
    known = cluster.cycle().waiting
    assert len(known) == 8
    cluster.looks = 4
    cluster.change()
    for _ in range(3):
        decided = cluster.cycle()
        assert decided.is_unfinished
        assert decided.waiting == known
        cluster.change()


def test_a_group_that_has_changed_loses_its_reasons_until_it_has_been_asked() -> None:
    cluster = Cluster(node("node", 1), *_refused(8), looks=100_000)
    cluster.cycle()
    cluster.looks = 4
    cluster.change()
    last = cluster.state.occupancy.pods["team/large007-0"]
    cluster.state.put_pod(replace(last, needs=replace(last.needs, cpu=1)))
    assert last.group not in cluster.cycle().waiting


def test_changes_do_not_starve_the_last_behind_those_who_are_refused_again() -> None:
    last = group("last")
    cluster = Cluster(node("node", 2), *_refused(30), last, pod(last, 2), looks=12)
    for _ in range(100):
        cluster.cycle()
        cluster.change()
    assert cluster.started == ["team/last-0"]


def test_changes_do_not_starve_queues_behind_a_queue_that_is_refused_again() -> None:
    last = group("last", "behind")
    cluster = Cluster(
        node("node", 2),
        queue("ahead", quota=100_000),
        queue("behind"),
        *(replace(of, queue="ahead") if isinstance(of, Group) else of for of in _refused(30)),
        last,
        pod(last, 2),
        looks=12,
    )
    for _ in range(100):
        cluster.cycle()
        cluster.change()
    assert cluster.started == ["team/last-0"]


def test_changes_do_not_keep_the_last_from_making_room() -> None:
    """It takes longer than a cycle to ask all whether there is room."""
    low, high = group("low", priority=-1), group("high")
    cluster = Cluster(
        node("node", 2), low, pod(low, 2, at="node"), *_refused(30), high, pod(high, 2), looks=12
    )
    for _ in range(100):
        cluster.cycle()
        cluster.change()
    assert cluster.evicted == ["team/low-0"]
    assert cluster.started == ["team/high-0"]


def test_half_of_the_time_is_for_those_who_were_not_asked() -> None:
    last = group("last")
    cluster = Cluster(node("node", 2), *_refused(60), last, pod(last, 2), looks=60)
    for _ in range(40):  # fewer than there are groups
        cluster.cycle()
        cluster.change()
    assert cluster.started == ["team/last-0"]


def test_one_group_is_asked_in_each_cycle_even_if_time_is_always_up() -> None:
    cluster = Cluster(node("node", 8), *_startable(8), *_refused(8), looks=0)
    for _ in range(40):
        cluster.cycle()
        cluster.change()
    decided = cluster.cycle()
    assert sorted(cluster.started) == [f"team/g{index}-0" for index in range(8)]
    assert decided.waiting.keys() == plan(cluster.state.snapshot()).waiting.keys()


@pytest.mark.parametrize("number", [1, 5, 20])
def test_a_search_that_is_cut_by_time_ends_with_the_answer_of_one_that_is_not(number: int) -> None:
    settings = EngineSettings(search_steps=None, consolidation_limit=1)
    unlimited = replace(SNAPSHOT, settings=settings)
    state = State(unlimited)
    engine = Engine(state)
    cycles = 0
    while (decided := engine.decide(looks(number))).is_unfinished:
        state.memory = decided.memory
        cycles += 1
        assert cycles < 500, "the search never ends"
    whole = plan(unlimited)
    assert (decided.evictions, decided.nominations) == (whole.evictions, whole.nominations)


@examples(40)
@given(st.randoms(use_true_random=False))
def test_no_plan_that_time_ends_early_breaks_a_rule(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    for _ in range(8):
        state = State(cluster.snapshot())
        decided = Engine(state).decide(looks(rng.randint(0, 40)))
        assert violations(cluster, decided) == []
        assert decided.is_unfinished or decided.memory.deferred == ()
        cluster.apply(decided)
        cluster.pass_round()


@examples(40)
@given(st.randoms(use_true_random=False))
def test_cycles_with_little_time_come_to_an_end_where_nothing_changes(rng: Random) -> None:
    cluster = random_cluster(rng, plan)
    state = State(cluster.snapshot())
    engine = Engine(state)
    number = rng.randint(0, 40)
    for _ in range(200):
        decided = engine.decide(looks(number))
        if not decided.is_empty or not decided.is_unfinished:
            break
        state.memory = decided.memory
    else:
        pytest.fail("it never ends")


def test_time_is_looked_at_while_one_claim_is_tried_on_many_nodes() -> None:
    def looks_for(nodes: int) -> int:
        scene = Scene().queue("q", quota=None)
        for number in range(nodes):
            scene.node(f"n{number:03}", 1)
        none = 'device.attributes["gpu.carina.dev"].?model.orValue("") == "none"'
        scene.waits("job")
        scene.claims["job-0"] = gpu_claim("job-0", selectors=(DeviceSelector(CelSelector(none)),))
        count = 0

        def spent() -> float:
            nonlocal count
            count += 1
            return 0

        assert Engine(scene.state()).decide(spent).waiting
        return count

    assert looks_for(100) > looks_for(10) + 50
