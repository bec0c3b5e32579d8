"""Checkpoints across versions: those of 0.1.0 are read, and 0.1.0 reads those of this version.

Both happen: an upgrade and a downgrade restart the plugin on the other version's file, and during a
rolling update plugins of both versions take turns in writing it.
"""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.config.device import Enforcement, GpuConfig, ShareConfig
from carina_dra.quantity import Quantity
from kubelet_plugin.claims.checkpoint import (
    Checkpoint,
    change,
    conflicting,
    render_change,
    render_checkpoint,
)
from kubelet_plugin.claims.checkpoint_file import CHANGES_KEPT, CheckpointFile
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from tests.samples import checkpoint_0_1_0 as old
from tests.samples.claims import allocated, claim

GOLDEN = Path(__file__).parent / "golden/checkpoints"
BOOT = "5c0f25d3-8f1d-4e64-9d38-7a9f5a6a0c11"

TRAIN = claim(allocated("gpu-0"))
MANY = claim(
    allocated("gpu-1"),
    allocated("gpu-2", "second"),
    allocated("gpu-10", "second"),
    uid="5e0f7a52-6b0e-4d0f-9a55-1c1c2a0d9b11",
    name="many",
)
MONITOR = claim(
    allocated("gpu-0", "watch", admin_access=True),
    allocated("gpu-1", "watch", admin_access=True),
    uid="0c8f2f8e-7f7c-4d53-8d39-4ad0f2b4a3c6",
    name="monitor",
)
SHARES = claim(
    allocated("gpu-3", share_id="2f1b9b1e-51a1-4d4b-a6b0-fb9b4c2f7f01"),
    allocated("gpu-3", "more", share_id="2f1b9b1e-51a1-4d4b-a6b0-fb9b4c2f7f02"),
    uid="9a1df3a0-2f54-4a64-9d8e-0d6a3f2b7f10",
    name="shares",
)
WRITTEN_BY_0_1_0 = {
    "empty": (),
    "one-claim": (TRAIN,),
    "several-claims": (TRAIN, MANY),
    "admin-access": (TRAIN, MONITOR),
    "share-ids": (SHARES,),
    "changes": (MANY, MONITOR, SHARES),
    "200-changes": (TRAIN, MANY),
    "torn-last-line": (TRAIN,),
}
NEW = claim(allocated("gpu-7"), uid="new", name="new")


def _state(*claims: NodeClaim) -> Checkpoint:
    return Checkpoint(BOOT, {each.uid: each for each in claims})


def _lines(path: Path) -> int:
    return path.read_bytes().count(b"\n")


@pytest.fixture(params=WRITTEN_BY_0_1_0)
def upgraded(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Path, Checkpoint]:
    """A file of version 0.1.0 in the plugin's folder, and what it records."""
    path = tmp_path / "checkpoint.jsonl"
    shutil.copyfile(GOLDEN / f"{request.param}.jsonl", path)
    return path, _state(*WRITTEN_BY_0_1_0[request.param])


def test_every_golden_file_is_tested() -> None:
    assert {path.stem for path in GOLDEN.iterdir()} == WRITTEN_BY_0_1_0.keys()


def test_a_checkpoint_of_0_1_0_is_read(upgraded: tuple[Path, Checkpoint]) -> None:
    path, recorded = upgraded
    assert CheckpointFile(path).load() == recorded


def test_a_state_is_written_as_by_0_1_0() -> None:
    for name in ("empty", "one-claim", "several-claims", "admin-access", "share-ids"):
        golden = (GOLDEN / f"{name}.jsonl").read_bytes()
        assert render_checkpoint(_state(*WRITTEN_BY_0_1_0[name])) == golden


@pytest.mark.parametrize("name", ["empty", "one-claim", "several-claims", "changes"])
def test_changes_are_appended_to_a_file_of_0_1_0(name: str, tmp_path: Path) -> None:
    path = tmp_path / "checkpoint.jsonl"
    golden = shutil.copyfile(GOLDEN / f"{name}.jsonl", path).read_bytes()
    file = CheckpointFile(path)
    before = file.load()
    assert before is not None
    file.store(before.with_claim(NEW))
    file.load()
    file.store(before)
    assert path.read_bytes().startswith(golden)
    assert _lines(path) == golden.count(b"\n") + 2
    assert CheckpointFile(path).load() == before


@pytest.mark.parametrize("name", ["200-changes", "torn-last-line"])
def test_a_long_or_torn_file_of_0_1_0_is_replaced_by_the_next_change(
    name: str, tmp_path: Path
) -> None:
    path = tmp_path / "checkpoint.jsonl"
    shutil.copyfile(GOLDEN / f"{name}.jsonl", path)
    file = CheckpointFile(path)
    before = file.load()
    assert before is not None
    file.store(before.with_claim(NEW))
    assert path.read_bytes() == render_checkpoint(before.with_claim(NEW))


def test_the_longest_file_of_0_1_0_is_the_longest_of_this_version() -> None:
    assert _lines(GOLDEN / "200-changes.jsonl") == CHANGES_KEPT + 1


def test_claims_of_0_1_0_can_be_removed_and_their_devices_given_again(
    upgraded: tuple[Path, Checkpoint],
) -> None:
    path, recorded = upgraded
    file = CheckpointFile(path)
    for uid in recorded.claims:
        checkpoint = file.load()
        assert checkpoint is not None
        file.store(checkpoint.without(uid))
    assert file.load() == CheckpointFile(path).load() == Checkpoint(BOOT, {})


names = st.text(min_size=1, max_size=8)
gpus = st.builds("gpu-{}".format, st.integers(0, 15))
whole_gpus = st.builds(
    AllocatedDevice,
    request=names,
    pool=st.just("node-1"),
    device=gpus,
    config=st.just(GpuConfig()),
    admin_access=st.booleans(),
    share_id=st.none() | names,
    consumed_capacity=st.dictionaries(names, st.integers(0, 2**70).map(Quantity.of), max_size=2),
)
whole_gpu_claims = st.builds(
    NodeClaim,
    uid=names,
    namespace=names,
    name=names,
    # A claim is never allocated a GPU twice.
    devices=st.lists(whole_gpus, max_size=4, unique_by=lambda allocated: allocated.device).map(
        tuple
    ),
)
whole_gpu_checkpoints = st.builds(
    Checkpoint,
    names,
    st.lists(whole_gpu_claims, max_size=5).map(lambda claims: {one.uid: one for one in claims}),
)


shares = st.builds(
    AllocatedDevice,
    request=names,
    pool=st.just("node-1"),
    device=gpus.map("{}-share".format),
    config=st.builds(
        ShareConfig,
        enforcement=st.builds(Enforcement, memory=st.sampled_from(["none", "mps", "kernel"])),
    ),
    share_id=names,
    consumed_capacity=st.fixed_dictionaries(
        {name: st.integers(1, 2**40).map(Quantity.of) for name in ("memory", "cores")}
    ),
)
share_claims = st.builds(
    NodeClaim,
    uid=names,
    namespace=names,
    name=names,
    devices=st.lists(shares, min_size=1, max_size=4).map(tuple),
)
share_checkpoints = st.builds(
    Checkpoint,
    names,
    st.lists(share_claims, max_size=5).map(lambda claims: {one.uid: one for one in claims}),
)


def _for_0_1_0(claim: NodeClaim) -> old.Claim:
    """All of a claim that version 0.1.0 acts upon."""
    devices = (
        old.Device(d.request, d.pool, d.device, d.admin_access, d.share_id) for d in claim.devices
    )
    return old.Claim(claim.uid, claim.namespace, claim.name, tuple(devices))


def _checkpoint_for_0_1_0(checkpoint: Checkpoint) -> old.Checkpoint:
    claims = {uid: _for_0_1_0(claim) for uid, claim in checkpoint.claims.items()}
    return old.Checkpoint(checkpoint.boot_id, claims)


@given(whole_gpu_checkpoints)
def test_0_1_0_reads_every_state_of_whole_gpus(checkpoint: Checkpoint) -> None:
    assert old.read(render_checkpoint(checkpoint)) == _checkpoint_for_0_1_0(checkpoint)


@given(whole_gpu_checkpoints, st.lists(whole_gpu_claims, max_size=5))
def test_0_1_0_reads_every_change_of_whole_gpus(
    before: Checkpoint, claims: list[NodeClaim]
) -> None:
    content, state = render_checkpoint(before), before
    for one in claims:
        for after in (state.with_claim(one), state.with_claim(one).without(one.uid)):
            step = change(state, after)
            content += b"" if step is None else render_change(step)
            state = after
            assert old.read(content) == _checkpoint_for_0_1_0(state)


def _without_share_ids(claim: NodeClaim) -> NodeClaim:
    """The claim as a scheduler allocates whole GPUs."""
    return replace(claim, devices=tuple(replace(each, share_id=None) for each in claim.devices))


@given(whole_gpu_checkpoints, whole_gpu_claims.map(_without_share_ids))
def test_0_1_0_refuses_the_same_whole_gpus(checkpoint: Checkpoint, claim: NodeClaim) -> None:
    refused = conflicting(checkpoint, claim) is not None
    assert old.overlap(_checkpoint_for_0_1_0(checkpoint), _for_0_1_0(claim)) == refused


@given(share_checkpoints)
def test_0_1_0_reads_states_with_shares(checkpoint: Checkpoint) -> None:
    assert old.read(render_checkpoint(checkpoint)) == _checkpoint_for_0_1_0(checkpoint)


@given(share_checkpoints, share_claims)
def test_0_1_0_lets_claims_hold_shares_of_one_gpu_together(
    checkpoint: Checkpoint, claim: NodeClaim
) -> None:
    assert conflicting(checkpoint, claim) is None
    assert not old.overlap(_checkpoint_for_0_1_0(checkpoint), _for_0_1_0(claim))


@pytest.mark.parametrize("name", WRITTEN_BY_0_1_0)
def test_the_frozen_rules_read_the_golden_files(name: str) -> None:
    expected = _checkpoint_for_0_1_0(_state(*WRITTEN_BY_0_1_0[name]))
    assert old.read((GOLDEN / f"{name}.jsonl").read_bytes()) == expected


@pytest.mark.parametrize(
    ("what", "replacement"),
    [
        pytest.param(b'"version":1', b'"version":2', id="another version"),
        pytest.param(b'"kind":"GpuConfig"', b'"kind":"MigConfig"', id="another kind"),
        pytest.param(b'"apiVersion":"resource.carina.dev/v1alpha1",', b"", id="no apiVersion"),
        pytest.param(b'"request":"gpu"', b'"request":""', id="no request"),
        pytest.param(b'"pool":"node-1",', b"", id="no pool"),
        pytest.param(b'"config":{', b'"configs":{', id="no config"),
        pytest.param(b'{"version"', b'[{"version"', id="no JSON"),
    ],
)
def test_the_frozen_rules_refuse_what_0_1_0_refuses(what: bytes, replacement: bytes) -> None:
    content = render_checkpoint(_state(TRAIN))
    assert what in content
    with pytest.raises(old.UnreadableError):
        old.read(content.replace(what, replacement))
