"""What the mirror makes of a cluster, whenever it is brought up to date."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TypeAlias, assert_never

from hypothesis import given
from hypothesis import strategies as st

from controller.api.pod_group import DeclaredGroup
from controller.engine.model.group import Group, PodSet
from controller.engine.model.queue import QUEUE_LABEL
from controller.engine.model.snapshot import Snapshot
from controller.names import GATE, GROUP_LABEL, NODE_ANNOTATION
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod, read_pod

_NOW = 1_000_000.0
_CREATED = "1970-01-12T13:00:00Z"
_NAMES = st.sampled_from("abc")


@dataclass(frozen=True, slots=True)
class _PutPod:
    name: str
    is_held: bool


@dataclass(frozen=True, slots=True)
class _RemovePod:
    name: str


@dataclass(frozen=True, slots=True)
class _DeclareGroup:
    pods: int
    """The minimum; 0 that the PodGroup is gone."""


@dataclass(frozen=True, slots=True)
class _Refresh:
    pass


_Change: TypeAlias = _PutPod | _RemovePod | _DeclareGroup | _Refresh
_CHANGES = st.lists(
    st.one_of(
        st.builds(_PutPod, _NAMES, st.booleans()),
        st.builds(_RemovePod, _NAMES),
        st.builds(_DeclareGroup, st.integers(0, 3)),
        st.just(_Refresh()),
    ),
    max_size=12,
)


def _pod(name: str, version: int, *, is_held: bool) -> ObservedPod:
    labels = {QUEUE_LABEL: "research", GROUP_LABEL: "train"}
    metadata = {"namespace": "team", "name": name, "uid": f"{name}-{version}", "labels": labels}
    annotations = {} if is_held else {NODE_ANNOTATION: "n1"}
    stored = {"resourceVersion": str(version), "creationTimestamp": _CREATED}
    spec = {"schedulingGates": [{"name": GATE}]} if is_held else {}
    return read_pod({"metadata": {**metadata, **stored, "annotations": annotations}, "spec": spec})


def _declare(mirror: Mirror, pods: int) -> None:
    declared = DeclaredGroup("team", "train", "1", 1, _NOW, PodSet("", pods))
    mirror.declare(declared.key, declared if pods else None)


def _mirror(changes: Iterable[_Change]) -> Mirror:
    mirror = Mirror(Snapshot(now=_NOW))
    for version, change in enumerate(changes, 1):
        match change:
            case _PutPod(name, is_held):
                mirror.put_pod(_pod(name, version, is_held=is_held))
            case _RemovePod(name):
                known = mirror.pods.get(f"team/{name}")
                if known is not None:
                    mirror.remove_pod(known)
            case _DeclareGroup(pods):
                _declare(mirror, pods)
            case _Refresh():
                mirror.refresh(_NOW)
            case _:
                assert_never(change)
    mirror.refresh(_NOW)
    return mirror


def _beside_minimums(mirror: Mirror) -> Mapping[str, Group]:
    """The groups, without their minimums: those remember what was seen (`observe.minimum`)."""
    return {
        key: replace(group, root=PodSet("", 0), started=None)
        for key, group in mirror.state.occupancy.groups.items()
    }


@given(_CHANGES)
def test_the_state_is_the_same_however_often_it_was_brought_up_to_date(
    changes: list[_Change],
) -> None:
    often = _mirror(changes)
    # Versions are positions, so what is left out is replaced by something without effect.
    once = _mirror(_RemovePod("none") if change == _Refresh() else change for change in changes)

    assert often.state.occupancy.pods == once.state.occupancy.pods
    assert _beside_minimums(often) == _beside_minimums(once)
    assert often.state.waiting == once.state.waiting


def test_pods_wait_for_their_group_and_are_decided_on_when_it_can_be() -> None:
    mirror = _mirror([_PutPod("a", is_held=True), _Refresh()])
    before = set(mirror.state.waiting)

    _declare(mirror, 1)
    mirror.refresh(_NOW)

    assert (before, set(mirror.state.waiting)) == (set(), {"team/train"})
