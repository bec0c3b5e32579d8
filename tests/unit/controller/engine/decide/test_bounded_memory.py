"""What is remembered between cycles does not grow with what tenants write."""

import gc

from carina_dra.placement.choice.placer import PlacementRequest
from carina_dra.resource import ResourceClaim, decode, encode
from controller.engine.decide.cycle import Engine
from controller.engine.decide.nodes.domain import Domains
from controller.engine.model.pod import PodNeeds
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State
from tests.unit.controller.engine.decide.gpu_cluster import (
    CLASS,
    claim,
    gpus,
    group,
    node,
    queue,
    waiting,
)


def objects_of(root: object, depth: int = 3) -> int:
    """How many entries the collections that an object has hold, and those of its own objects."""
    found = len(root) if isinstance(root, dict | list | set) else 0
    if depth and hasattr(root, "__dict__"):
        found += sum(objects_of(each, depth - 1) for each in vars(root).values())
    return found


def test_pods_that_come_and_go_leave_nothing_behind() -> None:
    state = State(Snapshot(now=0, nodes=(node(),), queues=(queue("q"),), groups=(group("a/g"),)))

    def pass_by(first: int, last: int) -> int:
        for cpu in range(first, last):
            state.put_pod(waiting("a/p", "a/g", needs=PodNeeds(cpu=cpu)))
            state.remove_pod("a/p")
        return objects_of(state)

    before = pass_by(0, 1)

    assert pass_by(1, 2_000) < before + 100


def test_levels_that_groups_make_up_are_forgotten() -> None:
    domains = Domains(State(Snapshot(now=0, nodes=(node(),))))

    def ask_for(first: int, last: int) -> int:
        for level in range(first, last):
            domains.of("made-up", f"level-{level}")
        return objects_of(domains)

    before = ask_for(0, 256)

    assert ask_for(256, 2_000) <= before


def test_claims_that_are_gone_are_not_kept() -> None:
    state = State(
        Snapshot(
            now=0,
            nodes=(node(),),
            slices=(gpus(),),
            classes=(CLASS,),
            queues=(queue("q", quota=8),),
            groups=(group("t/g"),),
        )
    )
    engine = Engine(state)
    for index in range(400):
        body = encode(claim("t/c"))
        body["metadata"]["uid"] = f"uid-{index}"
        opaque = {"driver": "d", "parameters": {"of": index}}
        body["spec"]["devices"]["config"] = [{"opaque": opaque}]
        state.put_claim(decode(ResourceClaim, body))
        state.put_pod(waiting("t/p", "t/g", "t/c"))
        assert len(engine.decide().starts) == 1
        state.remove_pod("t/p")
        state.remove_claim("t/c")
    gc.collect()
    claims = [each for each in gc.get_objects() if isinstance(each, ResourceClaim)]
    requests = [each for each in gc.get_objects() if isinstance(each, PlacementRequest)]
    assert max(len(claims), len(requests)) < 200
