"""The members of groups, kept up to date pod by pod, are those that a count of all pods finds."""

from collections import Counter
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from controller.engine.decide.gangs.placement_unit import stands, surplus
from controller.engine.decide.gangs.trial import Trial
from controller.engine.decide.nodes.places import Place
from controller.engine.model.group import Group, PodSet, SubGroups
from controller.engine.model.plan import Action
from controller.engine.model.pod import (
    Ended,
    Evicting,
    Gated,
    Pending,
    Placed,
    Pod,
    PodNeeds,
    PodState,
)
from controller.engine.state.members import GroupPods, order_of_pod
from controller.engine.state.state import State
from tests.unit.controller.engine.properties.examples import examples
from tests.unit.controller.engine.scene import Scene

_NODES = ("n0", "n1", "n2")
_SETS = ("a", "b", "c")
_ROOTS = (
    PodSet("a", 1),
    PodSet("", 3),
    SubGroups("", (PodSet("a", 1), PodSet("b", 2)), 1),
    SubGroups("", (SubGroups("x", (PodSet("a", 0), PodSet("b", 1)), 1), PodSet("c", 2)), 2),
)
_STEPS = 40


@examples(150)
@given(st.randoms(use_true_random=False))
def test_members_are_those_that_a_count_of_all_pods_finds(rng: Random) -> None:
    trial = _trial(rng)
    state = trial.state
    for _ in range(_STEPS):
        mark = state.occupancy.mark()
        before = _all(state)
        for _ in range(rng.randint(0, 6)):
            _try(trial, rng)
            assert _all(state) == _counted(state)
        state.occupancy.rollback(mark)
        assert _all(state) == before
        _event(state, rng)
        assert _all(state) == _counted(state)


@examples(150)
@given(st.randoms(use_true_random=False))
def test_what_a_group_can_lose_of_a_node_is_what_it_can_lose_that_is_there(rng: Random) -> None:
    trial = _trial(rng)
    state = trial.state
    for _ in range(rng.randint(0, 12)):
        _try(trial, rng)
    for group in state.occupancy.groups.values():
        for node in _NODES:
            there = [
                pods
                for pods in surplus(state.occupancy, group)
                if any(state.occupancy.holds[pod.key].node == node for pod in pods)
            ]
            assert list(surplus(state.occupancy, group, node)) == there


@examples(150)
@given(st.randoms(use_true_random=False))
def test_a_group_stands_without_pods_if_it_would_have_its_minimum_once_they_are_gone(
    rng: Random,
) -> None:
    trial = _trial(rng)
    state = trial.state
    for _ in range(rng.randint(0, 12)):
        _try(trial, rng)
    for group in state.occupancy.groups.values():
        pods = [pod for pod in state.occupancy.pods.values() if pod.group == group.key]
        without = rng.sample(pods, rng.randint(0, len(pods)))
        left = Counter(
            pod.pod_set if len(group.pod_sets) > 1 else group.pod_sets[0].name
            for pod in pods
            if state.occupancy.is_active(pod.key)
            and not state.occupancy.is_nominated(pod.key)
            and pod not in without
        )
        assert stands(state.occupancy, group, without) == _has_minimum(group.root, left)


def _trial(rng: Random) -> Trial:
    scene = Scene().queue("q")
    for node in _NODES:
        scene.node(node)
    for number in range(2):
        scene.group(f"g{number}", root=rng.choice(_ROOTS))
    for number in range(rng.randint(0, 12)):
        scene.pods[f"p{number}"] = _pod(number, rng)
    return scene.trial()


def _pod(number: int, rng: Random) -> Pod:
    return Pod(
        f"t/p{number}",
        PodNeeds(),
        _pod_state(rng),
        group=rng.choice(["g0", "g0", "g1", "unknown", None]),
        pod_set=rng.choice(_SETS),
        rank=rng.randint(0, 2),
        created=rng.randint(0, 2),
    )


def _pod_state(rng: Random) -> PodState:
    node = rng.choice(_NODES)
    states: list[PodState] = [
        Pending(),
        Pending(),
        Gated(),
        Placed(node),
        Placed(node),
        Evicting(node),
        Evicting(node, stuck=True),
        Ended(succeeded=True),
    ]
    return rng.choice(states)


def _try(trial: Trial, rng: Random) -> None:
    """A step of a decision."""
    state = trial.state
    key = rng.choice([*state.occupancy.pods, ""])
    pod = state.occupancy.pods.get(key)
    if pod is None or pod.group not in state.occupancy.groups:
        return
    if state.occupancy.is_active(key):
        if key in trial.placed and rng.random() < 0.5:
            trial.wait(pod)
        else:
            trial.evict(pod, Action.PREEMPT, "g0")
    elif state.occupancy.is_pending(key) or key in trial.evictions:
        if key in trial.evictions and rng.random() < 0.5 and key not in trial._withdrawn:
            trial.put_back(pod)
        else:
            trial.take(pod, Place(rng.choice(_NODES), (), waits=rng.random() < 0.3))


def _event(state: State, rng: Random) -> None:
    """A change of the cluster."""
    number = rng.randint(0, 14)
    match rng.choice(["put", "put", "remove", "group", "ungroup", "queues"]):
        case "put":
            state.put_pod(_pod(number, rng))
        case "remove":
            state.remove_pod(f"t/p{number}")
        case "group":
            state.put_group(Group(rng.choice(["g0", "g1", "unknown"]), "q", rng.choice(_ROOTS)))
        case "ungroup":
            state.remove_group(rng.choice(["g0", "g1", "unknown"]))
        case _:
            state.put_queues(state.snapshot().queues)


def _all(state: State) -> dict[str, object]:
    return {key: _seen(of) for key, of in state.occupancy.members.items()}


def _seen(members: GroupPods) -> object:
    return (
        {name: set(pods) for name, pods in members.by_set.items()},
        {name: list(pods) for name, pods in members.pending.items()},
        {name: list(pods) for name, pods in members.active.items()},
        {name: dict(nodes) for name, nodes in members.nodes.items()},
        dict(members.nominated),
    )


def _counted(state: State) -> dict[str, object]:
    found: dict[str, object] = {}
    pods = sorted(state.occupancy.pods.values(), key=order_of_pod)
    for key in {pod.group for pod in pods if pod.group is not None}:
        by_set: dict[str, set[str]] = {}
        pending: dict[str, list[str]] = {}
        active: dict[str, list[str]] = {}
        nodes: dict[str, Counter[str]] = {}
        nominated: Counter[str] = Counter()
        group = state.occupancy.groups.get(key)
        for pod in pods:
            if pod.group != key:
                continue
            by_set.setdefault(pod.pod_set, set()).add(pod.key)
            alone = group is not None and len(group.pod_sets) == 1
            name = group.pod_sets[0].name if group is not None and alone else pod.pod_set
            if state.occupancy.is_pending(pod.key):
                pending.setdefault(name, []).append(pod.key)
            if state.occupancy.is_active(pod.key):
                active.setdefault(name, []).append(pod.key)
                node = state.occupancy.holds[pod.key].node
                nodes.setdefault(name, Counter())[node] += 1
                if pod.key in state.occupancy.nominated.get(node, ()):
                    nominated[name] += 1
        counts = {name: dict(of) for name, of in nodes.items()}
        found[key] = (by_set, pending, active, counts, dict(nominated))
    return found


def _has_minimum(part: PodSet | SubGroups, counts: Counter[str]) -> bool:
    if isinstance(part, PodSet):
        return counts[part.name] >= part.min_count
    return sum(_has_minimum(child, counts) for child in part.children) >= part.min_count
