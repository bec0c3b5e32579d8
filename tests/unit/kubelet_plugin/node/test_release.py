"""How a node's GPUs are released and restored."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.release import Phase, ReleaseFacts, answer, next_phase
from kubelet_plugin.node.view import ReleaseAsked

_ASKED = ReleaseAsked("new driver", evict_all=False)
_FACTS = st.builds(
    ReleaseFacts,
    request=st.sampled_from([None, _ASKED]),
    holders=st.lists(st.sampled_from(["a/one", "b/two"]), max_size=2),
    published=st.booleans(),
    settled=st.booleans(),
)


def _facts(
    *holders: str, asked: bool = True, published: bool = True, settled: bool = True
) -> ReleaseFacts:
    return ReleaseFacts(_ASKED if asked else None, holders, published, settled)


def test_release_goes_through_draining_until_no_claim_is_prepared() -> None:
    assert next_phase(Phase.IN_SERVICE, _facts()) is Phase.DRAINING
    assert next_phase(Phase.DRAINING, _facts("default/train")) is Phase.DRAINING
    assert next_phase(Phase.DRAINING, _facts()) is Phase.RELEASED
    assert next_phase(Phase.RELEASED, _facts()) is Phase.RELEASED


def test_nothing_is_released_before_the_taint_is_published() -> None:
    assert next_phase(Phase.DRAINING, _facts(published=False)) is Phase.DRAINING


def test_gpus_are_in_service_once_prepared_claims_were_checked() -> None:
    assert next_phase(Phase.RELEASED, _facts(asked=False)) is Phase.RESTORING
    unsettled = _facts(asked=False, settled=False)
    assert next_phase(Phase.RESTORING, unsettled) is Phase.RESTORING
    assert next_phase(Phase.RESTORING, _facts(asked=False)) is Phase.IN_SERVICE


def test_release_can_be_taken_back_and_asked_for_again() -> None:
    assert next_phase(Phase.DRAINING, _facts("a/one", asked=False)) is Phase.IN_SERVICE
    assert next_phase(Phase.RESTORING, _facts()) is Phase.DRAINING


def test_claims_are_checked_also_if_a_release_is_taken_back_during_a_restore() -> None:
    phase = next_phase(Phase.RESTORING, _facts(settled=False))
    phase = next_phase(phase, _facts(asked=False, settled=False))
    assert phase is Phase.RESTORING


@given(phase=st.sampled_from(Phase), facts=_FACTS)
def test_driver_is_closed_only_from_draining_without_claims(
    phase: Phase, facts: ReleaseFacts
) -> None:
    then = next_phase(phase, facts)

    if then is Phase.RELEASED and phase is not Phase.RELEASED:
        assert phase is Phase.DRAINING
        assert facts.request is not None
        assert not facts.holders


@given(phase=st.sampled_from(Phase), asked=st.booleans())
def test_every_phase_leads_to_what_is_asked_for(phase: Phase, asked: bool) -> None:
    for _ in range(4):
        phase = next_phase(phase, _facts(asked=asked))

    assert phase is (Phase.RELEASED if asked else Phase.IN_SERVICE)


@given(phase=st.sampled_from(Phase), facts=_FACTS)
def test_condition_is_true_only_when_released(phase: Phase, facts: ReleaseFacts) -> None:
    said = answer(phase, facts)

    assert said.released == (phase is Phase.RELEASED)
    assert (said.phase is None) == (phase is Phase.IN_SERVICE)


def test_message_names_who_is_waited_for() -> None:
    many = [f"default/claim-{number}" for number in range(12)]

    assert answer(Phase.DRAINING, _facts("a/one", "b/two")).message == (
        "new driver; 2 claims are prepared: a/one, b/two"
    )
    assert answer(Phase.DRAINING, _facts(*many)).message.endswith("default/claim-9 and 2 more")
    assert answer(Phase.DRAINING, _facts(*many[:10])).message.endswith("default/claim-9")
    assert answer(Phase.DRAINING, _facts(published=False)).message == (
        "new driver; no claim is prepared; the taint is not published yet"
    )
    assert answer(Phase.RELEASED, _facts(asked=False)).message == (
        "no longer asked for; the plugin has closed the driver and its devices"
    )


@pytest.mark.parametrize("phase", Phase)
def test_phase_is_kept_for_the_next_process(tmp_path: Path, phase: Phase) -> None:
    PhaseFile(tmp_path / "phase").store(Phase.RELEASED)

    PhaseFile(tmp_path / "phase").store(phase)

    assert PhaseFile(tmp_path / "phase").read() is phase


def test_node_without_the_file_is_in_service(tmp_path: Path) -> None:
    assert PhaseFile(tmp_path / "phase").read() is Phase.IN_SERVICE
    assert not PhaseFile(tmp_path / "phase").refuses_claims()


def test_node_in_service_has_no_file(tmp_path: Path) -> None:
    for _ in range(2):
        PhaseFile(tmp_path / "phase").store(Phase.IN_SERVICE)
        assert list(tmp_path.iterdir()) == []
        PhaseFile(tmp_path / "phase").store(Phase.RELEASED)
    PhaseFile(tmp_path / "phase").store(Phase.IN_SERVICE)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"unheard of\n", b"\xff\xfe", b""])
def test_phase_of_another_version_drains_until_the_node_was_asked(
    tmp_path: Path, content: bytes
) -> None:
    (tmp_path / "phase").write_bytes(content)

    assert PhaseFile(tmp_path / "phase").read() is Phase.DRAINING


def test_no_claim_is_prepared_if_the_phase_cannot_be_read(tmp_path: Path) -> None:
    assert PhaseFile(tmp_path).refuses_claims()
