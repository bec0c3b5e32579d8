"""A checkpoint that is lost or unreadable: kept, and rebuilt from the node and the API."""

import errno
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from carina_dra.kube.errors import (
    ApiError,
    Forbidden,
    Unreachable,
)
from kubelet_plugin.claims.failure import (
    AllocationRefused,
    CheckpointUnusable,
    ClaimError,
)
from tests.fakes.claims import PATIENT
from tests.samples.claims import UID
from tests.unit.kubelet_plugin.claims.world import (
    DRIVER,
    GET,
    OTHER,
    TRAIN,
    World,
    body,
    refusal,
)


@pytest.mark.parametrize(
    "content", [b"", b"{", b"\0" * 50, b"[]", b'{"version": 1, "claims": [{}]}']
)
def test_an_unreadable_checkpoint_is_kept_and_rebuilt(world: World, content: bytes) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(content)
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}
    (kept,) = world.folder.glob("checkpoint.jsonl.unreadable-*")
    ((named, reason, found),) = world.reporter.rebuilt
    assert (named, found) == (str(kept), 1)
    assert reason.startswith(f"checkpoint {world.checkpoint}: line 1")
    assert kept.read_bytes() == content


@pytest.mark.parametrize("content", [b'{"version":99}\n', b'{"claims":[]}', b'{"version":0}\n{\n'])
def test_a_checkpoint_of_another_form_fails_the_claim_and_stays_as_it_is(
    world: World, content: bytes
) -> None:
    world.claims().prepare(OTHER, PATIENT)
    world.checkpoint.write_bytes(content)
    world.claims().repair()
    failure = refusal(world, TRAIN)
    assert isinstance(failure, CheckpointUnusable)
    for words in (str(world.checkpoint), "field version", "rename the file"):
        assert words in str(failure)
    assert world.checkpoint.read_bytes() == content
    assert list(world.folder.glob("*unreadable*")) == []
    assert set(world.node.made) == {OTHER.uid}


def test_once_it_is_renamed_a_checkpoint_of_another_form_is_rebuilt(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b'{"version":99}\n')
    claims = world.claims()
    with pytest.raises(ClaimError):
        claims.prepare(TRAIN, PATIENT)
    world.checkpoint.rename(world.folder / "checkpoint.jsonl.old")
    claims.prepare(OTHER, PATIENT)
    assert world.recorded() == {"train": ("gpu-0",), "other": ("gpu-1",)}


@pytest.mark.parametrize("operation", ["load", "store"])
def test_a_checkpoint_that_the_disk_refuses_fails_the_claim_and_is_not_rebuilt(
    world: World, monkeypatch: pytest.MonkeyPatch, operation: str
) -> None:
    def refuse(_descriptor: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    world.claims().prepare(OTHER, PATIENT)
    content = world.checkpoint.read_bytes()
    monkeypatch.setattr(os, "fsync" if operation == "load" else "fdatasync", refuse)
    failure = refusal(world, TRAIN)
    assert isinstance(failure, CheckpointUnusable)
    assert str(world.checkpoint) in str(failure)
    assert "Input/output error" in str(failure)
    assert world.checkpoint.read_bytes() == content
    assert list(world.folder.glob("*unreadable*")) == []
    assert set(world.node.made) == {OTHER.uid}


def test_a_claim_that_another_version_prepared_is_kept_though_its_configuration_is_refused(
    world: World,
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.unlink()
    later = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "LaterConfig"}
    opaque = {"driver": DRIVER, "parameters": later}
    found = body(TRAIN, "gpu-0")
    found["status"]["allocation"]["devices"]["config"] = [{"source": "FromClaim", "opaque": opaque}]
    world.api["train"] = found

    world.claims().repair()

    assert world.recorded() == {"train": ("gpu-0",)}
    assert set(world.node.made) == {UID}
    assert isinstance(refusal(world, TRAIN), AllocationRefused)


def test_a_lost_checkpoint_is_rebuilt(world: World) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.unlink()
    world.claims().repair()
    assert world.recorded() == {"train": ("gpu-0",)}


@pytest.mark.parametrize(
    "found",
    [
        Unreachable(GET, "refused"),
        Forbidden(GET, "no right"),
        {},
        body(TRAIN, "gpu-0", request=5),
        body(OTHER, "gpu-1"),
        {"metadata": {"namespace": "default", "name": "train"}, "spec": {}},
    ],
    ids=["unreachable", "forbidden", "empty", "odd", "another claim", "without UID"],
)
def test_nothing_is_rebuilt_or_removed_while_claims_cannot_be_read(
    world: World, found: dict[str, Any] | ApiError
) -> None:
    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b"{")
    world.api["train"] = found
    claims = world.claims()
    claims.repair()
    assert world.checkpoint.read_bytes() == b"{"
    assert set(world.node.made) == {UID}
    with pytest.raises(ClaimError, match="being rebuilt") as caught:
        claims.prepare(OTHER, PATIENT)
    assert isinstance(caught.value.failure, CheckpointUnusable)


def test_an_unreadable_checkpoint_is_kept_where_no_hard_links_are_allowed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refused(*_: object) -> None:
        raise PermissionError(1, "Operation not permitted")

    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b"{")
    monkeypatch.setattr(os, "link", refused)
    world.claims().repair()
    (kept,) = world.folder.glob("checkpoint.jsonl.unreadable-*")
    assert kept.read_bytes() == b"{"
    assert world.recorded() == {"train": ("gpu-0",)}


def test_a_copy_that_a_kill_has_cut_off_is_completed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    class KilledError(BaseException):
        pass

    def linked(_: Path, link: Path) -> None:
        """The kernel looks for the name first, and then refuses the link."""
        raise FileExistsError(link) if link.exists() else PermissionError(link)

    def cut_off(source: Path, copy: Path) -> None:
        copy.write_bytes(source.read_bytes()[:1])
        raise KilledError

    world.claims().prepare(TRAIN, PATIENT)
    world.checkpoint.write_bytes(b"{ damaged")
    monkeypatch.setattr(os, "link", linked)
    with monkeypatch.context() as killing:
        killing.setattr(shutil, "copyfile", cut_off)
        with pytest.raises(KilledError):
            world.claims().repair()
    world.claims().repair()
    (kept,) = world.folder.glob("checkpoint.jsonl.unreadable-*")
    assert kept.read_bytes() == b"{ damaged"
    assert world.recorded() == {"train": ("gpu-0",)}
