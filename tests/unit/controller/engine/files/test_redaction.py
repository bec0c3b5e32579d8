"""A snapshot that others may see: what it leaves out, and that it decides alike."""

import json
from dataclasses import replace

from carina_dra.resource import DeviceClass, ResourceClaim, decode, encode
from controller.engine.decide.cycle import plan
from controller.engine.files.file import read_snapshot, write_snapshot
from controller.engine.files.redaction import redacted
from controller.engine.model.snapshot import Snapshot
from tests.unit.controller.engine.scene import Scene

_SECRET = "a-secret"
_OPAQUE = {"opaque": {"driver": "gpu.carina.dev", "parameters": {"secretRef": _SECRET}}}


def snapshot() -> Snapshot:
    """A cluster in which everything that users can write is a secret."""
    scene = Scene().node("n", 3).queue("q", quota=3)
    found = scene.runs("old", "n", gpus=2).waits("new").waits("large", gpus=2).snapshot()
    return replace(
        found,
        claims=tuple(map(_with_secrets, found.claims)),
        classes=tuple(
            decode(DeviceClass, encode(one) | {"spec": {"config": [_OPAQUE]}})
            for one in found.classes
        ),
    )


def _with_secrets(claim: ResourceClaim) -> ResourceClaim:
    body = encode(claim)
    body["metadata"]["annotations"] = {"note": _SECRET}
    body["metadata"]["managedFields"] = [{"manager": _SECRET}]
    body["spec"]["devices"]["config"] = [_OPAQUE]
    allocation = body.get("status", {}).get("allocation")
    if allocation:
        allocation["devices"]["config"] = [{"source": "FromClaim", **_OPAQUE}]
        (first, *_) = allocation["devices"]["results"]
        device = {name: first[name] for name in ("driver", "pool", "device")}
        body["status"]["devices"] = [{**device, "data": {"token": _SECRET}}]
    return decode(ResourceClaim, body)


def test_nothing_of_it_is_secret() -> None:
    assert _SECRET in write_snapshot(snapshot())
    assert _SECRET not in write_snapshot(redacted(snapshot()))


def test_the_engine_decides_alike() -> None:
    before, after = plan(snapshot()), plan(redacted(snapshot()))
    assert [one.pod for one in before.starts] == ["t/new-0"]
    assert [(one.pod, one.node) for one in after.starts] == [
        (one.pod, one.node) for one in before.starts
    ]
    assert after.waiting == before.waiting


def test_what_is_written_is_read_as_it_was() -> None:
    shown = redacted(snapshot())
    assert read_snapshot("file", write_snapshot(shown).encode()) == shown
    assert json.loads(write_snapshot(shown).splitlines()[0])["kind"] == "Snapshot"
