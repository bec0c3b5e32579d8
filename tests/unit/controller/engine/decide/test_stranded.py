"""Free GPUs that nobody can use, and for lack of what."""

from dataclasses import replace

import pytest

from carina_dra.allocator.group import WHOLE
from controller.engine.decide.nodes.stranded import Lack, StrandedGpus, stranded
from controller.engine.decide.nodes.usable import Left
from controller.engine.model.pod import PodNeeds
from controller.engine.model.wish import TypicalWish, Wish
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import Scene

WHOLE_ONE = TypicalWish(1, Wish(10, 10, 1, WHOLE))
HALF = TypicalWish(1, Wish(10, 10, 1, WHOLE // 2))
TWO = TypicalWish(1, Wish(1, 1, 2, WHOLE))


@pytest.mark.parametrize(
    ("left", "lack"),
    [
        (Left(9, 100, 5, (WHOLE,)), Lack.CPU),
        (Left(100, 9, 5, (WHOLE,)), Lack.MEMORY),
        (Left(100, 100, 0, (WHOLE,)), Lack.PODS),
        (Left(100, 100, 5, (WHOLE // 3,)), Lack.FRAGMENTS),
    ],
)
def test_a_gpu_is_stranded_for_lack_of_what_its_wishes_need(left: Left, lack: Lack) -> None:
    assert stranded(left, [WHOLE_ONE, HALF]) == {lack: left.parts[0]}


def test_a_gpu_that_one_wish_can_use_is_not_stranded() -> None:
    assert stranded(Left(10, 10, 1, (WHOLE, WHOLE // 2)), [WHOLE_ONE, HALF]) == {}


def test_a_part_that_a_wish_for_one_can_use_is_not_stranded_without_a_whole_one() -> None:
    assert stranded(Left(10, 10, 1, (WHOLE // 2, 0)), [HALF]) == {}


def test_what_is_in_use_is_not_stranded() -> None:
    assert stranded(Left(0, 0, 0, (0, 0)), [WHOLE_ONE]) == {}


def test_a_wish_for_several_gpus_needs_as_many() -> None:
    assert stranded(Left(5, 5, 5, (WHOLE, WHOLE)), [WHOLE_ONE, TWO]) == {}
    assert stranded(Left(5, 5, 5, (WHOLE,)), [WHOLE_ONE, TWO]) == {Lack.CPU: WHOLE}


class TestOfState:
    def _scene(self) -> Scene:
        scene = Scene().node("a", 4, cpu=64_000).node("b", 2, cpu=1_000).queue("q")
        return scene.waits("new", gpus=0, needs=PodNeeds(cpu=63_500))

    def test_gpus_of_nodes_without_cpu_are_stranded(self) -> None:
        found = StrandedGpus(State(self._scene().snapshot()))
        assert found.by_lack() == {Lack.CPU: 2, Lack.MEMORY: 0, Lack.PODS: 0, Lack.FRAGMENTS: 0}
        assert found.by_node() == {"b": {Lack.CPU: 2}}

    def test_nodes_that_take_no_pods_are_left_out(self) -> None:
        scene = Scene().node("b", 2, cpu=1_000, unschedulable=True)
        assert not any(StrandedGpus(State(scene.snapshot())).by_lack().values())

    def test_it_follows_what_changes(self) -> None:
        state = State(self._scene().snapshot())
        found = StrandedGpus(state)
        assert found.by_lack()[Lack.CPU] == 2
        mark = state.occupancy.mark()
        state.occupancy.keep_room("a", PodNeeds(cpu=63_500))
        assert found.by_lack()[Lack.CPU] == 6
        state.occupancy.rollback(mark)
        assert found.by_lack()[Lack.CPU] == 2
        state.remove_node("b")
        assert found.by_lack()[Lack.CPU] == 0

    def test_a_node_that_takes_no_pods_any_more_is_left_out_at_once(self) -> None:
        scene = self._scene()
        state = State(scene.snapshot())
        found = StrandedGpus(state)
        assert found.by_lack()[Lack.CPU] == 2
        state.put_node(replace(scene.nodes["b"], unschedulable=True))
        assert found.by_lack()[Lack.CPU] == 0
        state.put_node(scene.nodes["b"])
        assert found.by_lack()[Lack.CPU] == 2

    def test_of_a_cluster_with_little_beside_its_gpus_less_is_asked_for(self) -> None:
        """Eight CPUs are little for four GPUs, but all that such nodes have."""
        scene = Scene().node("a", 4, cpu=8_000)
        assert not any(StrandedGpus(State(scene.snapshot())).by_lack().values())
        scene.node("b", 4, cpu=1_000_000)
        assert StrandedGpus(State(scene.snapshot())).by_lack()[Lack.CPU] == 4

    def test_wishes_for_parts_count_where_any_gpu_can_be_had_in_parts(self) -> None:
        scene = Scene().node("whole", 4, cpu=1_000_000).node("parts", 1, cpu=6_000)
        found = StrandedGpus(State(scene.snapshot()))
        assert found.by_node() == {"parts": {Lack.CPU: 1}}  # that is too little for a whole one
        published = scene.slices["parts"]
        (device,) = published.spec.devices
        shared = (replace(device, allow_multiple_allocations=True),)
        scene.slices["parts"] = replace(published, spec=replace(published.spec, devices=shared))
        assert not StrandedGpus(State(scene.snapshot())).by_node()

    def test_it_is_of_the_state_whose_nodes_it_counts(self) -> None:
        state, other = (State(self._scene().snapshot()) for _ in range(2))
        assert StrandedGpus(state).is_of(state)
        assert not StrandedGpus(state).is_of(other)
