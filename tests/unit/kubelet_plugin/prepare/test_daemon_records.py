"""The records of MPS daemons, as processes of the plugin after each other read them."""

import json
from pathlib import Path

import pytest

from carina_dra.sharing.message import MpsDevice, Reference, WantedDaemon
from kubelet_plugin.prepare.daemon_records import DaemonRecord, DaemonRecords

WANTED = WantedDaemon(
    claim=Reference(namespace="default", name="a", uid="uid-a"),
    devices=(MpsDevice(uuid="GPU-a", memory_mib=1000),),
    thread_percentage=10,
)


def test_what_was_recorded_is_read_by_the_next_process(tmp_path: Path) -> None:
    DaemonRecords(tmp_path, "boot").store(DaemonRecord(WANTED, ready=True))
    records = DaemonRecords(tmp_path, "boot")
    assert records.read("uid-a") == DaemonRecord(WANTED, ready=True)
    assert records.wanted() == (WANTED,)
    assert records.claims() == {"uid-a"}


def test_a_daemon_that_was_ready_before_a_reboot_is_not_ready(tmp_path: Path) -> None:
    DaemonRecords(tmp_path, "boot").store(DaemonRecord(WANTED, ready=True))
    assert DaemonRecords(tmp_path, "next boot").read("uid-a") == DaemonRecord(WANTED)


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"version": 2}, "has version 2, not 1"),
        ({"version": None}, "has version None, not 1"),
        ({"wanted": {}}, "is damaged"),
        ({"wanted": {**WANTED.model_dump(mode="json"), "devices": [{"uuid": 1}]}}, "is damaged"),
    ],
)
def test_what_this_version_cannot_read_counts_as_none_and_says_why(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, change: dict[str, object], reason: str
) -> None:
    records = DaemonRecords(tmp_path, "boot")
    records.store(DaemonRecord(WANTED))
    file = tmp_path / "uid-a.json"
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **change}))
    assert records.read("uid-a") is None
    assert records.wanted() == ()
    assert records.claims() == {"uid-a"}
    (logged,) = caplog.records
    assert reason in logged.__dict__["reason"]


def test_a_copy_of_a_record_beside_it_is_none(tmp_path: Path) -> None:
    """Such as an administrator's, of what the claim needed before."""
    records = DaemonRecords(tmp_path, "boot")
    records.store(DaemonRecord(WANTED.model_copy(update={"thread_percentage": 20})))
    (tmp_path / "uid-a.json").rename(tmp_path / "uid-a-before.json")
    records.store(DaemonRecord(WANTED))
    assert records.wanted() == (WANTED,)


@pytest.mark.parametrize("content", ["", "[]", "{}", "null", "[" * 100_000])
def test_a_damaged_file_counts_as_none(tmp_path: Path, content: str) -> None:
    records = DaemonRecords(tmp_path, "boot")
    records.store(DaemonRecord(WANTED))
    (tmp_path / "uid-a.json").write_text(content)
    assert records.read("uid-a") is None
    assert records.remove("uid-a")
    assert not records.remove("uid-a")
