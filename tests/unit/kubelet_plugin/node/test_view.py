"""What a Node asks of the plugin."""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.node.view import NodeView, OperandsPaused, ReleaseAsked, node_view

_DRIVER = "gpu.carina.dev"
_PAUSED = "nvidia.com/gpu.deploy.dcgm"


def _view(
    annotations: Mapping[str, str] | None = None, labels: Mapping[str, str] | None = None
) -> NodeView:
    named = {f"{_DRIVER}/{name}": value for name, value in (annotations or {}).items()}
    return node_view({"metadata": {"annotations": named, "labels": labels or {}}}, _DRIVER)


def test_node_without_annotations_and_labels_asks_for_nothing() -> None:
    assert node_view({"metadata": {"name": "n1"}}, _DRIVER) == NodeView()


def test_annotation_asks_for_a_release() -> None:
    assert _view({"release": "new driver"}).release == ReleaseAsked("new driver", evict_all=False)


def test_release_needs_no_reason() -> None:
    release = _view({"release": ""}).release

    assert release == ReleaseAsked("", evict_all=False)
    assert str(release) == "an administrator asks for it"


def test_release_may_ask_that_all_pods_are_evicted() -> None:
    view = _view({"release": "new driver", "release-evict": "all"})

    assert view.release == ReleaseAsked("new driver", evict_all=True)


def test_release_of_another_driver_is_not_meant() -> None:
    node = {"metadata": {"annotations": {"gpu.nvidia.com/release": "new driver"}}}

    assert node_view(node, _DRIVER) == NodeView()


@pytest.mark.parametrize(
    "value", ["paused-for-driver-upgrade", "pre-installed_paused-for-driver-upgrade"]
)
def test_paused_operand_of_the_gpu_operator_asks_for_a_release(value: str) -> None:
    assert _view(labels={_PAUSED: value}).release == OperandsPaused((_PAUSED,))


@pytest.mark.parametrize("value", ["true", "false", ""])
def test_operand_that_is_not_paused_asks_for_nothing(value: str) -> None:
    assert _view(labels={_PAUSED: value}).release is None


def test_label_of_another_kind_asks_for_nothing_whatever_its_value() -> None:
    assert _view(labels={"example.com/batch": "paused-for-lunch"}).release is None


def test_request_says_who_asks_and_why() -> None:
    assert str(ReleaseAsked("new driver", evict_all=False)) == "new driver"
    labels = {f"nvidia.com/gpu.deploy.{name}": "paused-for-mig-change" for name in "cabd"}
    for count, said in [(1, "c"), (2, "a and 1 more"), (4, "a and 3 more")]:
        release = _view(labels=dict(list(labels.items())[:count])).release
        assert str(release) == f"NVIDIA's GPU Operator has paused nvidia.com/gpu.deploy.{said}"


def test_unknown_kind_of_eviction_is_named_and_ignored() -> None:
    view = _view({"release": "new driver", "release-evict": "some"})

    assert view.release == ReleaseAsked("new driver", evict_all=False)
    assert [str(problem) for problem in view.invalid] == [
        "annotation gpu.carina.dev/release-evict is 'some', and is ignored; set it to all"
    ]


def test_faults_are_cleared_by_times() -> None:
    view = _view({"faults-cleared": '{"GPU-1": "2026-01-31T12:00:00Z"}'})

    assert view.faults_cleared == {"GPU-1": datetime(2026, 1, 31, 12, tzinfo=UTC)}
    assert not view.invalid


@pytest.mark.parametrize("text", ["", "GPU-1", "[]", '"GPU-1"', "{", "[" * 100_000])
def test_cleared_faults_that_are_no_object_are_named_and_ignored(text: str) -> None:
    view = _view({"faults-cleared": text, "release": "new driver"})

    assert view.release is not None
    assert view.faults_cleared == {}
    (problem,) = view.invalid
    assert str(problem) == (
        "annotation gpu.carina.dev/faults-cleared is no JSON object, and is ignored; set it to a "
        'JSON object such as {"GPU-...": "2026-01-31T12:00:00Z"}'
    )


@pytest.mark.parametrize(
    "time",
    [
        '"now"',
        "1",
        "null",
        '"2026-01-31T12:00:00"',
        '"2026-01-31"',
        '"2026-01-31 12:00:00Z"',
        '"0001-01-01T00:00:00+14:00"',
    ],
)
def test_time_that_is_none_costs_its_gpu_only(time: str) -> None:
    view = _view({"faults-cleared": f'{{"GPU-1": {time}, "GPU-2": "2026-01-31T12:00:00+01:00"}}'})

    assert view.faults_cleared == {"GPU-2": datetime(2026, 1, 31, 11, tzinfo=UTC)}
    assert {at.tzinfo for at in view.faults_cleared.values()} == {UTC}
    (problem,) = view.invalid
    assert "GPU-1, which is no time in RFC 3339" in str(problem)


_TEXT = st.text(max_size=50)


@given(
    annotations=st.dictionaries(
        st.sampled_from(["release", "release-evict", "faults-cleared"]), _TEXT
    ),
    labels=st.dictionaries(st.sampled_from([_PAUSED, "zone"]), _TEXT),
)
def test_nothing_on_a_node_fails(annotations: dict[str, str], labels: dict[str, Any]) -> None:
    view = _view(annotations, labels)

    assert (view.release is None) == (
        "release" not in annotations and "paused-for-" not in labels.get(_PAUSED, "")
    )
