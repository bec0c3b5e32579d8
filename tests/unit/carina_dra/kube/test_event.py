import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.kube.event import (
    NOTE_BYTES,
    EventSeries,
    EventType,
    ObjectReference,
    Occurrence,
    ReportingController,
    cut_note,
    event_body,
)

NODE = ObjectReference("v1", "Node", "n1")
REPORTER = ReportingController("gpu.carina.dev/kubelet-plugin", "n1")


def occurrence(regarding: ObjectReference = NODE) -> Occurrence:
    return Occurrence(regarding, EventType.WARNING, "GpuLost", "Observe", "gpu-0 is gone")


@given(st.text(max_size=3000))
def test_a_note_is_never_longer_than_the_api_allows(note: str) -> None:
    cut = cut_note(note)
    assert len(cut.encode()) <= NOTE_BYTES
    assert cut == note or (cut.endswith("…") and note.startswith(cut[:-1]))


def test_the_body_of_an_event() -> None:
    assert event_body(occurrence(), REPORTER, 1_000_000_000.25) == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"name": "n1.de0b6b3b64ab280", "namespace": "default"},
        "eventTime": "2001-09-09T01:46:40.250000Z",
        "reportingController": "gpu.carina.dev/kubelet-plugin",
        "reportingInstance": "n1",
        "regarding": {"apiVersion": "v1", "kind": "Node", "name": "n1"},
        "type": "Warning",
        "reason": "GpuLost",
        "action": "Observe",
        "note": "gpu-0 is gone",
    }


def test_the_longest_name_of_an_object_leaves_room_for_the_time() -> None:
    regarding = ObjectReference("v1", "Pod", "x" * 253, "team")
    metadata = event_body(occurrence(regarding), REPORTER, 1_000_000_000.0)["metadata"]
    assert len(metadata["name"]) <= 253
    assert metadata["namespace"] == "team"


class TestSeries:
    first = EventSeries("n1.1", last_at=100.0, written_at=100.0)

    def test_one_occurrence_is_written_already(self) -> None:
        assert not self.first.due(1000.0)

    def test_the_first_repetition_is_written_at_once(self) -> None:
        assert self.first.again(100.1).due(100.1)

    @pytest.mark.parametrize(("now", "due"), [(101.0, False), (130.9, False), (131.0, True)])
    def test_later_ones_every_half_minute(self, now: float, due: bool) -> None:
        series = self.first.again(101.0).written(101.0).again(102.0)
        assert series.due(now) is due

    @pytest.mark.parametrize(("now", "continues"), [(459.9, True), (460.0, False)])
    def test_it_is_over_after_six_minutes_of_silence(self, now: float, continues: bool) -> None:
        assert self.first.continues(now) is continues

    def test_its_patch_says_how_often_and_when_last(self) -> None:
        patch = self.first.again(1_000_000_000.0).patch()
        when = "2001-09-09T01:46:40.000000Z"
        assert patch == {"series": {"count": 2, "lastObservedTime": when}}
