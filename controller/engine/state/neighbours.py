"""Which pods are on which nodes, counted by what affinity and spread constraints ask for.

What is asked for once is counted from then on: the count follows each pod that comes or goes, in
trials too, so that asking again costs no look at the pods. Counts that have not been asked for in
a long time are forgotten, and made again when they are needed.
"""

from collections.abc import Iterator, Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from carina_dra.step_budget import StepBudget
from controller.engine.model.label_selector import LabelSelectorOperator
from controller.engine.model.pod import Pod, PodAffinity, PodSelection

Selections: TypeAlias = tuple[PodSelection, ...]
"""A pod is meant if all of them select it."""
_Label: TypeAlias = tuple[str, str]
"""A label that all pods have which may be meant; `_ANY` if there is none."""
_K = TypeVar("_K")
_V = TypeVar("_V")
_Index: TypeAlias = dict[str, dict[_Label, dict[_K, _V]]]
"""By the namespace and a label of the pods that may be meant."""

_ANY: Final[_Label] = "", ""
_EVERYWHERE: Final = ""
"""In place of a namespace: pods of several namespaces may be meant."""
_COUNTED: Final = 256
"""The counts that are kept for each namespace; each costs a little when a pod comes or goes."""
_LOOKS: Final = 512
"""The requirements of the counts that are kept for each namespace, unless it is one count alone. A
pod of anybody that comes or goes, in trials too, may be compared with all those of several
namespaces."""
_NAMESPACES: Final = 4_096
"""The namespaces for which counts are kept: tenants may name any that do not exist."""
_GUARDS: Final = 256
"""The most different terms of other namespaces that keep the pods of a namespace, or of several,
away: any namespace may write them, and they are looked at for pods of somebody else. Their
requirements are at most `_LOOKS`."""
_LABELS: Final = 4
"""A requirement with more values is looked at for all pods."""
_PODS_A_STEP: Final = 32
"""So many terms are looked at for a pod in one step."""
_VALUES_A_LOOK: Final = 8
"""So many values of a requirement take as long as another one."""
_LOOKS_A_STEP: Final = 32
"""So many requirements are looked at in one step when pods are counted."""


class Guard(NamedTuple):
    """A term of pods that keeps others away from their domains."""

    term: PodAffinity
    by_node: Mapping[str, int]
    """How many of these pods are on each node."""


class NodeCounts:
    """How many pods of a selection are on each node; a node without any is left out."""

    __slots__ = ("by_node", "key", "version")

    def __init__(self, key: Selections) -> None:
        self.key = key
        self.by_node: dict[str, int] = {}
        self.version = 0
        """How often it has changed."""

    def add(self, node: str, change: int) -> None:
        """More pods are on a node, or fewer."""
        _add(self.by_node, node, change)
        self.version += 1


class Neighbours:
    """The pods on nodes, by selections."""

    def __init__(
        self,
        pods: Mapping[str, Pod],
        on_node: Mapping[str, Mapping[str, None]],
        namespaces: Mapping[str, Mapping[str, str]],
    ) -> None:
        """`on_node` are the pods to be counted, by node; `namespaces` the labels of each."""
        self._pods = pods
        self._on_node = on_node
        self._namespaces = namespaces
        self._counts: dict[str, dict[Selections, NodeCounts]] = {}
        """By namespace; the namespaces and selections that were asked for last at the end."""
        self._looks: dict[str, int] = {}
        """By namespace: the requirements of these."""
        self._to_count: _Index[Selections, NodeCounts] = {}
        self._guards: _Index[PodAffinity, dict[str, int]] = {}
        """The anti-affinity of the pods that are counted, by the pods that it keeps away."""
        self._foreign_guards: dict[str, dict[PodAffinity, int]] = {}
        """By namespace: the terms that came with pods of other namespaces; their requirements."""
        self._has_forgotten = False
        """Whether something is not counted that was asked for by somebody who may be refused."""

    @property
    def kept_namespaces(self) -> int:
        """For how many namespaces counts are kept."""
        return len(self._counts)

    def put(self, pod: Pod, node: str) -> None:
        """Records that a pod is on a node."""
        self._change(pod, node, 1)

    def remove(self, pod: Pod, node: str) -> None:
        """Records that it is not; the exact inverse of `put`."""
        self._change(pod, node, -1)

    def counts(self, selections: Selections, budget: StepBudget) -> NodeCounts:
        """How many pods are on each node that all selections mean; it is kept up to date.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        namespace, requirements = _namespace_of(selections), _requirements(selections)
        steps, what = 1 + len(self._pods) * requirements // _LOOKS_A_STEP, ("pods", selections)
        was_charged = what in budget.charged
        budget.spend_once(what, steps)
        known = self._counts.pop(namespace, None) or {}
        if len(self._counts) >= _NAMESPACES:
            self._has_forgotten = True
            self._forget_namespace(next(iter(self._counts)))
        self._counts[namespace] = known
        counts = known.pop(selections, None)
        if counts is None:
            if was_charged:
                budget.spend(steps)  # what the attempt asks for is more than is kept
            counts = self._counted(selections)
            self._insert(namespace, counts)
            self._looks[namespace] = self._looks.get(namespace, 0) + requirements
        known[selections] = counts
        while len(known) > _COUNTED or (self._looks[namespace] > _LOOKS and len(known) > 1):
            self._forget(namespace, known.pop(next(iter(known))))
        return counts

    def selects(self, selections: Selections, pod: Pod) -> bool:
        """Whether all selections mean a pod."""
        namespace = pod.namespace
        labels = self.labels_of(namespace)
        return all(each.selects(namespace, labels, pod) for each in selections)

    def guards_against(self, pod: Pod, budget: StepBudget) -> Iterator[Guard]:
        """The terms of other pods that keep this one away from their domains.

        Raises:
            OutOfStepsError: the budget does not suffice.
        """
        if self._guards:
            for terms in _for_pod(self._guards, pod):
                budget.spend(1 + len(terms) // _PODS_A_STEP)
                for term, by_node in terms.items():
                    if self.selects((term.selection,), pod):
                        yield Guard(term, by_node)

    def is_awaited(self, pod: Pod) -> bool:
        """Whether somebody may have been refused because such a pod had no place."""
        if self._has_forgotten:
            return True
        return any(
            self.selects(key, pod) for counts in _for_pod(self._to_count, pod) for key in counts
        )

    def all_are_asked_again(self) -> None:
        """Records that nobody is refused any more because such a pod had no place."""
        self._has_forgotten = False

    def labels_of(self, namespace: str) -> Mapping[str, str]:
        """The labels of a namespace; each has its name as one."""
        known = self._namespaces.get(namespace)
        return {"kubernetes.io/metadata.name": namespace} if known is None else known

    def forget_namespaces(self, gone: str | None = None) -> bool:
        """Records that labels of namespaces have changed; whether that matters.

        `gone` is a namespace that does not exist any more. What was asked for of its pods is
        counted again when it is asked for again.
        """
        was_counted = self._forget_namespace(_EVERYWHERE)
        if gone is not None:
            was_counted |= self._forget_namespace(gone)
        return was_counted or _EVERYWHERE in self._guards

    def _forget_namespace(self, namespace: str) -> bool:
        """Counts nothing any more of what was asked for of a namespace; whether it did."""
        self._to_count.pop(namespace, None)
        self._looks.pop(namespace, None)
        return bool(self._counts.pop(namespace, None))

    def _change(self, pod: Pod, node: str, change: int) -> None:
        if self._to_count:
            for of_label in _for_pod(self._to_count, pod):
                for key, counts in of_label.items():
                    if self.selects(key, pod):
                        counts.add(node, change)
        for term in pod.needs.pod_affinity:
            if term.anti:
                self._guard(term, pod.namespace, node, change)

    def _guard(self, term: PodAffinity, author: str, node: str, change: int) -> None:
        """Records that a pod of the namespace `author` has an anti-affinity term on a node."""
        key = (term.selection,)
        namespace = _namespace_of(key)
        foreign = self._foreign_guards.setdefault(namespace, {})
        for label in _labels_of(key):
            terms = self._guards.setdefault(namespace, {}).setdefault(label, {})
            by_node = terms.get(term)
            if by_node is None:
                is_foreign = author != namespace
                if change < 0 or (is_foreign and not _has_room(foreign, key)):
                    _tidy(self._guards, namespace, label)
                    break  # kube-scheduler finds it out
                by_node = terms[term] = {}
                if is_foreign:
                    foreign[term] = _requirements(key)
            _add(by_node, node, change)
            if not by_node:
                del terms[term]
                foreign.pop(term, None)
                _tidy(self._guards, namespace, label)
        if not foreign:
            del self._foreign_guards[namespace]

    def _counted(self, selections: Selections) -> NodeCounts:
        counts = NodeCounts(selections)
        namespace = _namespace_of(selections)
        for node, pods in self._on_node.items():
            for key in pods:
                pod = self._pods[key]
                if namespace in (_EVERYWHERE, pod.namespace) and self.selects(selections, pod):
                    counts.add(node, 1)
        return counts

    def _insert(self, namespace: str, counts: NodeCounts) -> None:
        for label in _labels_of(counts.key):
            of_label = self._to_count.setdefault(namespace, {}).setdefault(label, {})
            of_label[counts.key] = counts

    def _forget(self, namespace: str, counts: NodeCounts) -> None:
        self._has_forgotten = True
        self._looks[namespace] -= _requirements(counts.key)
        for label in _labels_of(counts.key):
            del self._to_count[namespace][label][counts.key]
            _tidy(self._to_count, namespace, label)


def _for_pod(index: _Index[_K, _V], pod: Pod) -> Iterator[dict[_K, _V]]:
    """The parts of an index that may mean a pod."""
    for namespace in (pod.namespace, _EVERYWHERE):
        by_label = index.get(namespace)
        if by_label:
            if _ANY in by_label:
                yield by_label[_ANY]
            for label in pod.labels.items():
                if label in by_label:
                    yield by_label[label]


def _namespace_of(selections: Selections) -> str:
    """The namespace of all pods that may be meant, if it is one."""
    for selection in selections:
        if selection.namespace_selector is None and len(selection.namespaces) == 1:
            return selection.namespaces[0]
    return _EVERYWHERE


def _requirements(selections: Selections) -> int:
    """How many requirements a pod is compared with at most; many values count as more of them."""
    requirements = (
        requirement
        for each in selections
        for selector in (each.selector, each.namespace_selector)
        if selector is not None
        for requirement in selector.requirements
    )
    looks = sum(1 + len(one.values) // _VALUES_A_LOOK for one in requirements)
    return max(1, looks + sum(len(each.namespaces) // _VALUES_A_LOOK for each in selections))


def _has_room(foreign: Mapping[PodAffinity, int], key: Selections) -> bool:
    """Whether one more term of another namespace is looked at."""
    if len(foreign) >= _GUARDS:
        return False
    return not foreign or sum(foreign.values()) + _requirements(key) <= _LOOKS


def _labels_of(selections: Selections) -> tuple[_Label, ...]:
    """Labels of which every pod has exactly one that may be meant."""
    for selection in selections:
        if selection.selector is None:
            return ()
        for requirement in selection.selector.requirements:
            is_one_of = requirement.operator is LabelSelectorOperator.IN
            if is_one_of and len(requirement.values) <= _LABELS:
                return tuple(
                    (requirement.key, value) for value in dict.fromkeys(requirement.values)
                )
    return (_ANY,)


def _add(by_node: dict[str, int], node: str, change: int) -> None:
    count = by_node.get(node, 0) + change
    if count > 0:
        by_node[node] = count
    else:
        by_node.pop(node, None)


def _tidy(index: _Index[_K, _V], namespace: str, label: _Label) -> None:
    """Removes what has become empty."""
    by_label = index[namespace]
    if not by_label[label]:
        del by_label[label]
        if not by_label:
            del index[namespace]
