"""What pods cost pods to come on each node, kept while nodes and devices change."""

from dataclasses import replace
from random import Random

import pytest

from carina_dra.resource import ResourceSlice, StringAttribute
from carina_dra.step_budget import StepBudget
from controller.engine.decide.nodes.node_losses import CostOfUse, NodeLosses
from controller.engine.model.pod import PodNeeds
from controller.engine.state.state import State
from tests.unit.controller.engine.scene import GIB, Scene, gpu_slice

_NODES = "abcd"
_NEEDS = (PodNeeds(), PodNeeds(cpu=9_000), PodNeeds(cpu=2_000, memory=64 * GIB))


def _slice(node: str, gpus: int, *, shared: bool = False, product: str = "") -> ResourceSlice:
    published = gpu_slice(node, gpus)
    devices = tuple(
        replace(
            device,
            attributes={"productName": StringAttribute(product)},
            allow_multiple_allocations=shared,
        )
        for device in published.spec.devices
    )
    return replace(published, spec=replace(published.spec, devices=devices))


def _costs(losses: NodeLosses, needs: PodNeeds) -> dict[str, CostOfUse]:
    """What a pod without devices costs on each node."""
    return dict(losses.without_devices(needs, StepBudget.unlimited()))


def _change(state: State, dice: Random) -> None:
    """Changes something about a node, or what is free there."""
    name = dice.choice(_NODES)
    match dice.randrange(5):
        case 0:
            cpu = dice.choice([0, 8_000, 64_000])
            state.put_node(Scene().node(name, cpu=cpu).nodes[name])
        case 1:
            state.remove_node(name)
        case 2:
            product = dice.choice(["A", "B"])
            shared = dice.random() < 0.3
            state.put_devices(_slice(name, dice.randint(1, 4), shared=shared, product=product))
        case 3:
            state.remove_devices(_slice(name, 1))
        case _:
            if name in state.occupancy.nodes:
                state.occupancy.keep_room(name, PodNeeds(cpu=1_000 * dice.randint(1, 20)))


@pytest.mark.parametrize("seed", range(10))
def test_they_are_those_of_a_first_look_whatever_has_changed(seed: int) -> None:
    dice, scene = Random(seed), Scene().queue("q")
    for name in _NODES:
        scene.node(name, dice.randint(0, 4))
    state = scene.state()
    kept = NodeLosses(state)
    for _ in range(12):
        for _ in range(dice.randint(1, 2)):
            _change(state, dice)
        for needs in _NEEDS:
            assert _costs(kept, needs) == _costs(NodeLosses(state), needs)


def test_gpus_that_can_be_had_in_parts_are_worth_more_beside_little_cpu() -> None:
    """What is too little for a whole one may do for a part, so it is missed there."""
    state = Scene().queue("q").node("n", 2, cpu=6_000).node("m", 4, cpu=200_000).state()
    losses, needs = NodeLosses(state), PodNeeds(cpu=4_000)
    before = _costs(losses, needs)["n"].loss
    state.put_devices(_slice("n", 2, shared=True))
    assert _costs(losses, needs)["n"].loss > before


def test_cpu_is_worth_more_where_the_cluster_has_little_beside_its_gpus() -> None:
    """Pods with GPUs are taken to ask for less there, so all GPUs of the node could be used."""
    scene, needs = Scene().queue("q").node("n", 4, cpu=8_000), PodNeeds(cpu=7_000)
    alone = _costs(NodeLosses(scene.state()), needs)["n"].loss
    scene.node("rich", 4, cpu=1_000_000)
    assert alone > _costs(NodeLosses(scene.state()), needs)["n"].loss
