"""The files with what Carina makes on GPUs: durable, and no more damaged than they were."""

import logging
from pathlib import Path

import pytest

from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.mig_intent import MigIntents
from kubelet_plugin.prepare.mig_intent_file import MigIntentFiles
from kubelet_plugin.prepare.resource import ResourceError

GPU, OTHER = "GPU-00000000-0000-0000-0000-000000000000", "GPU-00000000-0000-0000-0000-000000000001"
INTENTS = MigIntents("gpu-0", "0000:1b:00.0", instances={"part": MigSite(19, MigPlacement(6, 1))})
NOTHING = MigIntents("gpu-0", "0000:1b:00.0")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "plugin/mig"


def files(folder: Path, boot: str = "boot-1") -> MigIntentFiles:
    return MigIntentFiles(folder, boot)


def test_nothing_is_recorded_before_the_first_intent(folder: Path) -> None:
    assert files(folder).read(GPU) is None
    assert files(folder).all() == {}
    assert not folder.exists()


def test_another_process_reads_what_is_recorded(folder: Path) -> None:
    files(folder).store(GPU, INTENTS)

    assert files(folder).read(GPU) == INTENTS
    assert files(folder).all() == {GPU: INTENTS}


def test_a_file_that_names_nothing_is_removed_with_what_a_kill_left_beside_it(folder: Path) -> None:
    files(folder).store(GPU, INTENTS)
    folder.joinpath(f"{GPU}.json.new").write_bytes(b"{")

    files(folder).store(GPU, NOTHING)

    assert list(folder.iterdir()) == []


def test_recording_nothing_where_nothing_is_recorded_does_nothing(folder: Path) -> None:
    files(folder).store(GPU, NOTHING)

    assert not folder.exists()


def test_what_a_kill_left_half_written_is_not_read_and_is_replaced(folder: Path) -> None:
    folder.mkdir(parents=True)
    folder.joinpath(f"{GPU}.json.new").write_bytes(b'{"version":')
    assert files(folder).all() == {}

    files(folder).store(GPU, INTENTS)

    assert [file.name for file in folder.iterdir()] == [f"{GPU}.json"]


def test_what_another_boot_recorded_is_not_read_and_is_replaced(folder: Path) -> None:
    files(folder, "boot-0").store(GPU, INTENTS)
    assert files(folder).read(GPU) is None
    assert files(folder).all() == {}

    other = MigIntents("gpu-0", "0000:1b:00.0", mode=True)
    files(folder).store(GPU, other)

    assert files(folder).read(GPU) == other
    assert [file.name for file in folder.iterdir()] == [f"{GPU}.json"]


@pytest.mark.parametrize("stored", [INTENTS, NOTHING])
def test_a_damaged_file_is_kept_under_another_name(folder: Path, stored: MigIntents) -> None:
    folder.mkdir(parents=True)
    folder.joinpath(f"{GPU}.json").write_bytes(b"damaged")

    files(folder).store(GPU, stored)

    (kept,) = folder.glob("*.unreadable-*")
    assert kept.read_bytes() == b"damaged"
    assert files(folder).read(GPU) == (stored or None)


def test_a_damaged_file_is_reported_once_with_its_path_and_does_not_hide_others(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading = files(folder)
    reading.store(OTHER, INTENTS)
    folder.joinpath(f"{GPU}.json").write_bytes(b"damaged")

    with caplog.at_level(logging.WARNING):
        assert reading.all() == {OTHER: INTENTS}
        assert reading.all() == {OTHER: INTENTS}

    (record,) = caplog.records
    assert record.__dict__["file"] == str(folder / f"{GPU}.json")


def test_a_folder_that_cannot_be_used_is_an_error_with_the_remedy(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file")

    for use in (
        lambda: files(folder).all(),
        lambda: files(folder).read(GPU),
        lambda: files(folder).store(GPU, INTENTS),
    ):
        with pytest.raises(ResourceError, match="check the folder and its disk") as failed:
            use()
        assert failed.value.failure.retriable


def test_what_was_last_read_is_known_while_the_file_cannot_be_read(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    reading = files(folder)
    reading.store(GPU, INTENTS)
    assert reading.last_read(GPU) == INTENTS
    folder.joinpath(f"{GPU}.json").unlink()
    folder.joinpath(f"{GPU}.json").mkdir()

    with caplog.at_level(logging.WARNING):
        assert reading.last_read(GPU) == INTENTS
        assert reading.last_read(GPU) == INTENTS

    (record,) = caplog.records
    assert "check the folder and its disk" in record.__dict__["reason"]


def test_what_could_never_be_read_is_nothing(folder: Path) -> None:
    folder.parent.mkdir()
    folder.write_text("a file")

    assert files(folder).last_read(GPU) is None
