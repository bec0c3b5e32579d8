"""Pod affinity in random small clusters, compared with the documented rules read one by one."""

from collections.abc import Iterator
from random import Random

import pytest

from carina_dra.allocator.node import Node
from carina_dra.step_budget import UNLIMITED, StepBudget
from controller.engine.decide.nodes.labelled_nodes import LabelledNodes
from controller.engine.decide.nodes.pod_affinity import PodRules
from controller.engine.model.label_selector import (
    LabelRequirement,
    LabelSelector,
    LabelSelectorOperator,
)
from controller.engine.model.node import ClusterNode
from controller.engine.model.pod import Pending, Placed, Pod, PodAffinity, PodNeeds, PodSelection
from controller.engine.model.snapshot import Snapshot
from controller.engine.state.state import State

_KEYS = ("a", "b")
_VALUES = ("0", "1", "2")
_NAMESPACES = {"n": {"team": "0"}, "m": {"team": "1"}, "o": {}}
_TOPOLOGY = ("zone", "host")


def _labels(random: Random) -> dict[str, str]:
    return {key: random.choice(_VALUES) for key in _KEYS if random.random() < 0.7}


def _selector(random: Random, keys: tuple[str, ...] = _KEYS) -> LabelSelector:
    requirements = []
    for _ in range(random.randrange(3)):
        operator = random.choice(list(LabelSelectorOperator))
        has_values = operator in (LabelSelectorOperator.IN, LabelSelectorOperator.NOT_IN)
        values = tuple(random.sample(_VALUES, random.randint(1, 2))) if has_values else ()
        requirements.append(LabelRequirement(random.choice(keys), operator, values))
    return LabelSelector(tuple(requirements))


def _term(random: Random, namespace: str) -> PodAffinity:
    selector = None if random.random() < 0.05 else _selector(random)
    named = tuple(sorted(random.sample(list(_NAMESPACES), random.randrange(3))))
    of_namespaces = _selector(random, ("team",)) if random.random() < 0.4 else None
    if not named and of_namespaces is None:
        named = (namespace,)
    selection = PodSelection(selector, named, of_namespaces)
    return PodAffinity(random.choice(_TOPOLOGY), selection, random.random() < 0.6)


def _pod(random: Random, name: str, node: str | None) -> Pod:
    namespace = random.choice(list(_NAMESPACES))
    terms = tuple(_term(random, namespace) for _ in range(random.choice((0, 0, 1, 2, 3))))
    state = Pending() if node is None else Placed(node)
    return Pod(f"{namespace}/{name}", PodNeeds(pod_affinity=terms), state, labels=_labels(random))


def _means(term: PodAffinity, pod: Pod) -> bool:
    selection = term.selection
    of_namespace = (
        selection.namespace_selector is not None
        and selection.namespace_selector.matches(_NAMESPACES[pod.namespace])
    )
    return (
        selection.selector is not None
        and selection.selector.matches(pod.labels)
        and (pod.namespace in selection.namespaces or of_namespace)
    )


def _expected(nodes: dict[str, dict[str, str]], others: list[Pod], pod: Pod) -> Iterator[str]:
    """The nodes by the rules of kube-scheduler's filter, with no index."""
    placed = [
        (other, nodes[other.state.node]) for other in others if isinstance(other.state, Placed)
    ]
    close = [term for term in pod.needs.pod_affinity if not term.anti]
    apart = [term for term in pod.needs.pod_affinity if term.anti]
    meant = [labels for other, labels in placed if all(_means(term, other) for term in close)]
    counted = {
        (term.topology_key, labels[term.topology_key])
        for labels in meant
        for term in close
        if term.topology_key in labels
    }
    for name, here in nodes.items():
        keys = [term.topology_key for term in close]
        if any(key not in here for key in keys):
            continue
        is_close = all((key, here[key]) in counted for key in keys)
        is_first = not counted and all(_means(term, pod) for term in close)
        if not (is_close or is_first):
            continue
        if any(
            _means(term, other)
            and term.topology_key in here
            and labels.get(term.topology_key) == here[term.topology_key]
            for term in apart
            for other, labels in placed
        ):
            continue
        if any(
            term.anti
            and _means(term, pod)
            and term.topology_key in here
            and labels.get(term.topology_key) == here[term.topology_key]
            for other, labels in placed
            for term in other.needs.pod_affinity
        ):
            continue
        yield name


@pytest.mark.parametrize("seed", range(300))
def test_allowed_nodes_are_those_of_the_rules(seed: int) -> None:
    random = Random(seed)
    nodes = {
        f"node-{index}": {
            key: str(random.randrange(3)) for key in _TOPOLOGY if random.random() < 0.85
        }
        for index in range(random.randint(1, 6))
    }
    pods = [
        _pod(random, f"pod-{index}", random.choice([*nodes, None]))
        for index in range(random.randint(0, 12))
    ]
    snapshot = Snapshot(
        now=0,
        nodes=tuple(ClusterNode(Node(name, labels), 1000, 1000) for name, labels in nodes.items()),
        pods=tuple(pods),
        namespaces=_NAMESPACES,
    )
    state, budget = State(snapshot), StepBudget(UNLIMITED)
    rules, names = PodRules(state.occupancy, LabelledNodes(state.occupancy)), frozenset(nodes)
    pending = [pod for pod in pods if isinstance(pod.state, Pending)]
    for _ in range(3):
        for pod in pending:
            found = rules.allowed(pod, names, budget)
            assert found == set(_expected(nodes, list(state.occupancy.pods.values()), pod)), pod
        changed = random.choice(pods) if pods else None
        if changed is not None and isinstance(changed.state, Placed):
            key, node = changed.key, random.choice(list(nodes))
            mark = state.occupancy.mark()  # a trial leaves no trace in the counts
            state.occupancy.evict(key, here=True)
            state.occupancy.put_back(key, changed.state.node)
            state.occupancy.rollback(mark)
            moved = Pod(key, changed.needs, Placed(node), labels=_labels(random))
            state.put_pod(moved)
            pods[pods.index(changed)] = moved


@pytest.mark.parametrize("seed", range(50))
def test_a_trial_that_is_rolled_back_changes_no_answer(seed: int) -> None:
    random = Random(seed)
    nodes = {f"node-{index}": {"zone": str(index % 2), "host": str(index)} for index in range(4)}
    pods = [_pod(random, f"pod-{index}", random.choice([*nodes, None])) for index in range(10)]
    snapshot = Snapshot(
        now=0,
        nodes=tuple(ClusterNode(Node(name, labels), 1000, 1000) for name, labels in nodes.items()),
        pods=tuple(pods),
        namespaces=_NAMESPACES,
    )
    state, budget = State(snapshot), StepBudget(UNLIMITED)
    rules, names = PodRules(state.occupancy, LabelledNodes(state.occupancy)), frozenset(nodes)
    pending = [pod for pod in pods if isinstance(pod.state, Pending)]
    before = [rules.allowed(pod, names, budget) for pod in pending]
    mark = state.occupancy.mark()
    for pod in pods:
        if isinstance(pod.state, Placed) and random.random() < 0.5:
            state.occupancy.evict(pod.key, here=True)
        elif isinstance(pod.state, Pending) and random.random() < 0.5:
            state.occupancy.place(pod.key, random.choice(list(nodes)), ())
        for one in pending:
            rules.allowed(one, names, budget)
            rules.awaited(one, budget)
    state.occupancy.rollback(mark)
    assert [rules.allowed(pod, names, budget) for pod in pending] == before
