"""What is recorded of memory limits, and what counts of it."""

from pathlib import Path

import pytest

from kubelet_plugin.prepare.limit_records import LimitRecord, LimitRecords
from kubelet_plugin.prepare.resource import ResourceError
from tests.power_cut import Disk, lay_out

RECORD = LimitRecord("GPU-1", "0000:01:00.0", ("5f0c",), 1024)


@pytest.fixture
def records(tmp_path: Path) -> LimitRecords:
    return LimitRecords(tmp_path / "limits", "boot")


def test_what_is_stored_is_read_until_it_is_removed(records: LimitRecords) -> None:
    records.store("a.gpu-0", RECORD)
    assert records.read("a.gpu-0") == RECORD
    assert records.names() == {"a.gpu-0"}
    records.remove("a.gpu-0")
    records.remove("a.gpu-0")
    assert records.read("a.gpu-0") is None
    assert records.names() == frozenset()


def test_the_claims_of_a_pod_on_a_gpu_add_up(records: LimitRecords) -> None:
    records.store("a.gpu-1", RECORD)
    records.store("b.gpu-1", LimitRecord("GPU-1", "0000:01:00.0", ("5f0c", "77"), 512))
    records.store("c.gpu-1", LimitRecord("GPU-1", "0000:01:00.0", ("77",), 256))
    records.store("a.gpu-11", RECORD)
    assert records.total_mib("5f0c", "gpu-1") == 1024 + 512
    assert records.total_mib("77", "gpu-1") == 512 + 256
    assert records.total_mib("5f0c", "gpu-1", without="a.gpu-1") == 512
    assert records.total_mib("5f0c", "gpu-0") == 0


def test_a_record_of_another_boot_counts_nothing_and_is_still_there(tmp_path: Path) -> None:
    LimitRecords(tmp_path, "earlier boot").store("a.gpu-0", RECORD)
    records = LimitRecords(tmp_path, "boot")
    assert records.read("a.gpu-0") is None
    assert records.total_mib("5f0c", "gpu-0") == 0
    assert records.names() == {"a.gpu-0"}


@pytest.mark.parametrize(
    "content",
    [
        *("", "{", "[]", "7", '{"version": 2}', '{"version": 1}', '{"version": 1, "pods": 7}'),
        '{"version": 1, "gpu": "GPU-1", "pciBusID": "0", "pods": [], "mib": 1e999}',
        '{"version": 2, "bootID": "boot", "gpu": "GPU-1", "pciBusID": "0", "pods": [], "mib": 1}',
    ],
)
def test_a_record_that_cannot_be_read_counts_nothing_and_is_still_there(
    tmp_path: Path, records: LimitRecords, content: str, caplog: pytest.LogCaptureFixture
) -> None:
    records.store("b.gpu-0", RECORD)
    (tmp_path / "limits/a.gpu-0.json").write_text(content)
    assert records.read("a.gpu-0") is None
    assert records.total_mib("5f0c", "gpu-0") == 1024
    assert records.names() == {"a.gpu-0", "b.gpu-0"}
    assert [record.message for record in caplog.records] != []


def test_a_record_that_this_version_wrote_is_read(tmp_path: Path, records: LimitRecords) -> None:
    """As an earlier version of Carina has left it."""
    (tmp_path / "limits").mkdir()
    (tmp_path / "limits/a.gpu-0.json").write_text(
        '{"version":1,"bootID":"boot","gpu":"GPU-1","pciBusID":"0000:01:00.0","pods":["5f0c"],'
        '"mib":1024}\n'
    )
    assert records.read("a.gpu-0") == RECORD


def test_without_a_folder_nothing_is_recorded(records: LimitRecords) -> None:
    assert records.names() == frozenset()
    assert records.read("a.gpu-0") is None
    records.remove("a.gpu-0")


def test_other_files_are_no_records(tmp_path: Path, records: LimitRecords) -> None:
    records.store("b.gpu-0", RECORD)
    (tmp_path / "limits/notes.txt").touch()
    assert records.names() == {"b.gpu-0"}


def test_a_folder_that_is_none_is_an_error(tmp_path: Path, records: LimitRecords) -> None:
    (tmp_path / "limits").touch()
    for use in (
        records.names,
        lambda: records.read("a.gpu-0"),
        lambda: records.store("a.gpu-0", RECORD),
        lambda: records.remove("a.gpu-0"),
    ):
        with pytest.raises(ResourceError, match="check the folder and its disk"):
            use()


def test_what_is_removed_stays_removed_after_a_power_cut(
    tmp_path: Path, records: LimitRecords
) -> None:
    folder = tmp_path / "limits"
    records.store("a.gpu-0", RECORD)
    disk = Disk(folder)
    with disk.watched():
        records.remove("a.gpu-0")
    for number, state in enumerate(disk.after()):
        left = tmp_path / f"left-{number}"
        left.mkdir()
        lay_out(state, left)
        assert LimitRecords(left, "boot").names() == frozenset()


def test_the_file_that_a_killed_plugin_left_is_one_of_its_claim(
    tmp_path: Path, records: LimitRecords
) -> None:
    records.store("b.gpu-0", RECORD)
    (tmp_path / "limits/a.gpu-0.json.new").touch()
    assert records.names() == {"a.gpu-0", "b.gpu-0"}
    records.remove("a.gpu-0")
    assert records.names() == {"b.gpu-0"}


def test_a_total_follows_what_another_plugin_records(tmp_path: Path, records: LimitRecords) -> None:
    records.store("a.gpu-0", RECORD)
    assert records.total_mib("5f0c", "gpu-0") == 1024
    other = LimitRecords(tmp_path / "limits", "boot")
    other.store("b.gpu-0", RECORD)
    assert records.total_mib("5f0c", "gpu-0") == 2048
    other.remove("a.gpu-0")
    assert records.total_mib("5f0c", "gpu-0") == 1024
