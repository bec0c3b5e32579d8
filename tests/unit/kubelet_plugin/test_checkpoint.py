"""The checkpoint on disk: what is written is read, and what cannot be read is not guessed at."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.device_config import GpuConfig
from kubelet_plugin.checkpoint import Checkpoint, CheckpointError, CheckpointFile, parse, render
from kubelet_plugin.claim import ClaimDevice, PreparedClaim
from tests.unit.kubelet_plugin.sample_claims import UID, claim, granted

names = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
claim_devices = st.builds(
    ClaimDevice, names, names, names, st.just(GpuConfig()), st.booleans(), st.none() | names
)
prepared_claims = st.builds(
    PreparedClaim, names, names, names, st.lists(claim_devices, max_size=4).map(tuple)
)
checkpoints = st.builds(
    Checkpoint,
    names,
    st.lists(prepared_claims, max_size=5).map(lambda all_: {each.uid: each for each in all_}),
)


@given(checkpoints)
def test_what_is_written_is_read(checkpoint: Checkpoint) -> None:
    assert parse(render(checkpoint)) == checkpoint


@given(checkpoints, prepared_claims)
def test_striking_a_claim_out_undoes_adding_it(
    checkpoint: Checkpoint, added: PreparedClaim
) -> None:
    without = checkpoint.without(added.uid)
    assert without.with_claim(added).without(added.uid) == without


def test_fields_of_a_newer_plugin_are_passed_over() -> None:
    content = json.loads(render(Checkpoint("boot", {UID: claim(granted("gpu-0"))})))
    content["later"] = 1
    content["claims"][0]["later"] = 1
    content["claims"][0]["devices"][0]["later"] = 1
    content["claims"][0]["devices"][0]["config"]["later"] = 1
    assert parse(json.dumps(content).encode()).claims[UID] == claim(granted("gpu-0"))


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        (b"", "damaged"),
        (b"[]", "damaged"),
        (b'{"version": 2}', "of version 2, not 1"),
        (b'{"version": 1, "bootID": "b"}', "lacks the field 'claims'"),
        (b'{"version": 1, "bootID": "b", "claims": [{"uid": 5}]}', "field uid is 5"),
    ],
)
def test_what_is_wrong_is_said(content: bytes, problem: str) -> None:
    with pytest.raises(CheckpointError, match=problem):
        parse(content)


def test_what_another_process_wrote_is_seen(tmp_path: Path) -> None:
    ours, theirs = (CheckpointFile(tmp_path / "checkpoint.json") for _ in range(2))
    assert ours.load() is None
    theirs.store(Checkpoint("boot", {}))
    assert ours.load() == Checkpoint("boot", {})
    theirs.store(Checkpoint("boot", {UID: claim(granted("gpu-0"))}))
    loaded = ours.load()
    assert loaded is not None
    assert set(loaded.claims) == {UID}
