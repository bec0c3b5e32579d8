"""The file of the kubelet's record: read as it is now, and never believed when it is not whole."""

import shutil
from pathlib import Path

import pytest

from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.kubelet_record_file import KubeletRecordFile

_DATA = Path(__file__).parents[1] / "data" / "kubelet_record" / "v1.37.0"
_UID = "6f9c3a51-1f53-4c3e-9f2e-0a6f0d9b1c01"


@pytest.fixture
def file(tmp_path: Path) -> KubeletRecordFile:
    """The file of a kubelet whose root is a folder of the test."""
    return KubeletRecordFile(tmp_path)


def _holds(file: KubeletRecordFile) -> bool:
    record = file.read()
    assert isinstance(record, KubeletRecord)
    return record.holds(_UID)


def _reason(file: KubeletRecordFile) -> str:
    record = file.read()
    assert isinstance(record, UnreadableRecord)
    assert str(file.path) in record.reason
    return record.reason


def test_is_in_the_kubelets_root(file: KubeletRecordFile, tmp_path: Path) -> None:
    assert file.path == tmp_path / "dra_manager_state"


def test_replaced_file_is_read_again(file: KubeletRecordFile, tmp_path: Path) -> None:
    for name, held in (("one", True), ("none-left", False), ("one", True)):
        replacement = Path(shutil.copy(_DATA / name, tmp_path / ".new"))
        replacement.rename(file.path)
        assert _holds(file) == held


def test_missing_file_is_unreadable_and_not_empty(file: KubeletRecordFile) -> None:
    assert "set kubelet_root" in _reason(file)


def test_damaged_file_is_unreadable(file: KubeletRecordFile) -> None:
    file.path.write_bytes((_DATA / "one").read_bytes()[:-1])
    assert "not JSON" in _reason(file)


def test_file_that_the_system_does_not_give_is_unreadable(file: KubeletRecordFile) -> None:
    file.path.mkdir()
    assert "directory" in _reason(file)
