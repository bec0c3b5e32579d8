"""Whatever fails and in whichever order things happen: nothing is given twice, all that fits runs.

What must hold after every write is checked by the world itself (`Store.check`).
"""

from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.names import GROUP_LABEL
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.small_world import NODES, World, is_held

_STEPS = 120


@examples(60)
@given(st.randoms(use_true_random=False))
def test_a_cluster_with_faults_keeps_its_rules_and_settles(rng: Random) -> None:
    world = World(rng)
    for _ in range(_STEPS):
        world.step()
    world.settle()
    store = world.store
    running = {name for name, pod in store.pods.items() if pod["spec"].get("nodeName")}
    started = {name for name, pod in store.pods.items() if not is_held(pod)}
    refused = {name for name in started - running if not store.is_allocated(store.pods[name])}
    assert started == running | refused, "a pod with its devices does not run"
    free = sum(NODES.values()) - sum(len(store.results(one)) for one in store.claims.values())
    for name, pod in store.pods.items():
        if name not in running:
            assert asked(world, name) > free, f"{name} fits and waits: {pod}"


def asked(world: World, pod: str) -> int:
    """How many GPUs the gang of a pod has not got yet; more than all if it lacks pods."""
    pods = world.store.pods
    group = pods[pod]["metadata"]["labels"].get(GROUP_LABEL)
    gang = [one for one in pods.values() if one["metadata"]["labels"].get(GROUP_LABEL) == group]
    if group is None:
        gang = [pods[pod]]
    elif len(gang) < world.gangs[group]:
        return sum(NODES.values()) + 1
    claims = {each["resourceClaimName"] for one in gang for each in one["spec"]["resourceClaims"]}
    return sum(not world.store.results(world.store.claims[claim]) for claim in claims)
