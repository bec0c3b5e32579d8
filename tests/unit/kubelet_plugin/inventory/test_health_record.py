"""What outlasts the plugin, and files that are not as it wrote them."""

import json
import logging
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from carina_dra.nvidia.nvml_failure import NvmlFailure
from kubelet_plugin.inventory.damping import Damping, Failing, Recovered, Recovering, damped
from kubelet_plugin.inventory.diagnosis import HealthMemory
from kubelet_plugin.inventory.faults import Fault
from kubelet_plugin.inventory.health import (
    FOUND_BY_DRIVER,
    DriverVerdict,
    GpuLost,
    GpuProblem,
    GpuUnreadable,
    NvmlHang,
    identity,
)
from kubelet_plugin.inventory.health_file import GpusFile, HealthFile
from kubelet_plugin.inventory.health_record import HealthRecordError, read, written
from kubelet_plugin.inventory.inventory import DriverReady
from kubelet_plugin.inventory.mig import MigPlacement, MigSite
from kubelet_plugin.inventory.node_health import RememberedHealth
from tests.samples.gpus import LOST, MIG, NOTICED, UNREADABLE, gpu, observed

UUID = gpu(0).uuid
FAULT = Fault(95, None, NOTICED, NOTICED + timedelta(seconds=5), 3, "boot-1/7")
REMEMBERED = RememberedHealth(
    HealthMemory({UUID: {FAULT.key: FAULT}}, {UUID: frozenset({LOST, UNREADABLE})}),
    {(UUID, ("unanswered", None)): Failing(frozenset({LOST}), 2)},
)

SITES = st.none() | st.builds(
    MigSite, st.integers(0, 30), st.builds(MigPlacement, st.integers(0, 7), st.integers(1, 8))
)
TIMES = st.datetimes(
    min_value=datetime(2000, 1, 1),  # noqa: DTZ001 - Hypothesis adds the zone
    max_value=datetime(2100, 1, 1),  # noqa: DTZ001
    timezones=st.just(UTC),
)
TEXT = st.text(max_size=20)
FAILURES = st.builds(NvmlFailure, TEXT, TEXT)
PROBLEMS = st.one_of(
    st.builds(GpuLost, FAILURES, TIMES),
    st.builds(GpuUnreadable, FAILURES, TIMES),
    st.builds(GpuUnreadable, st.builds(NvmlHang, st.floats(0, 1e6)), TIMES),
    *(
        st.builds(kind, st.builds(DriverVerdict, TEXT, TEXT), TIMES, SITES)
        for kind in FOUND_BY_DRIVER
    ),
)
FAULTS = st.builds(Fault, st.integers(0, 9999), SITES, TIMES, TIMES, st.integers(1, 10**9), TEXT)
SETS = st.frozensets(PROBLEMS, max_size=4)
SECONDS = st.floats(0, 4e9)
TROUBLES = st.one_of(
    st.builds(Failing, SETS, st.integers(1, 99)),
    st.builds(Recovering, SETS, st.integers(1, 99), SECONDS),
    st.builds(Recovered, st.integers(1, 99), SECONDS),
)
UUIDS = st.sampled_from([gpu(minor).uuid for minor in range(3)])
KEYS = PROBLEMS.map(identity) | st.just(("unanswered", None))


@given(
    st.dictionaries(UUIDS, st.lists(FAULTS, max_size=3)),
    st.dictionaries(UUIDS, SETS.filter(bool)),
    st.dictionaries(st.tuples(UUIDS, KEYS), TROUBLES, max_size=4),
)
def test_what_is_written_is_read(faults, problems, troubles) -> None:  # type: ignore[no-untyped-def]
    by_key = {uuid: {fault.key: fault for fault in found} for uuid, found in faults.items()}
    remembered = RememberedHealth(HealthMemory(by_key, problems), troubles)
    assert read(written(remembered)) == remembered


@pytest.mark.parametrize("problem", [LOST, UNREADABLE])
def test_the_damping_of_a_gpu_that_does_not_answer_is_written_and_read(problem: GpuProblem) -> None:
    _, troubles = damped(DriverReady((observed(0, problem),)), {}, 0.0, Damping())
    assert troubles
    assert read(written(RememberedHealth(troubles=troubles))).troubles == troubles


@pytest.mark.parametrize(
    ("change", "where"),
    [
        (lambda record: record.update(version=2), "version"),
        (lambda record: record.pop("faults"), "faults"),
        (lambda record: record.update(more=1), "more"),
        (lambda record: record["faults"][UUID][0].update(xid="many"), f"faults.{UUID}.0.xid"),
        (lambda record: record["faults"][UUID][0].update(first="2026-11-20T12:00:00"), "first"),
        (lambda record: record["problems"][UUID][0].update(state="well"), "state"),
        (lambda record: record["problems"][UUID][0].update(because=3), "problem lost"),
        (
            lambda record: record["problems"][UUID][0].update(because={"reason": "r", "text": "t"}),
            "problem lost",
        ),
        (lambda record: record["troubles"][0].update(at=3), "phase failing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_record_that_is_not_one_is_refused_where_it_is_not(change, where: str) -> None:  # type: ignore[no-untyped-def]
    record = json.loads(written(REMEMBERED))
    change(record)
    with pytest.raises(HealthRecordError, match=where):
        read(json.dumps(record).encode())


def test_a_record_that_is_cut_off_is_refused_as_a_whole() -> None:
    with pytest.raises(HealthRecordError, match=r"^the file: "):
        read(written(REMEMBERED)[:-10])


def test_a_file_keeps_what_is_remembered(tmp_path: Path) -> None:
    assert HealthFile(tmp_path).load() == RememberedHealth()
    HealthFile(tmp_path).save(REMEMBERED)
    assert HealthFile(tmp_path).load() == REMEMBERED
    assert [path.name for path in tmp_path.iterdir()] == ["health.json"]


@pytest.mark.parametrize("content", [b"", b"{", b"\xff\xfe", b"[]", b'{"version": 7}'])
def test_a_damaged_file_is_set_aside_and_an_error_says_so(
    tmp_path: Path, content: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "health.json").write_bytes(content)

    with caplog.at_level(logging.ERROR):
        assert HealthFile(tmp_path).load() == RememberedHealth()

    assert (tmp_path / "health.json.damaged").read_bytes() == content
    (record,) = caplog.records
    assert "set aside" in record.message
    assert "DeviceTaintRule" in record.message


def test_a_file_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "health.json").mkdir()
    with pytest.raises(OSError, match=r"health\.json"):
        HealthFile(tmp_path).load()


def test_the_gpus_are_kept_as_they_are_but_for_their_problems(tmp_path: Path) -> None:
    inventory = DriverReady((observed(0, LOST, mig=MIG), observed(1)))
    GpusFile(tmp_path).save(inventory)
    assert GpusFile(tmp_path).load() == DriverReady((observed(0, mig=MIG), observed(1)))


@pytest.mark.parametrize("content", [b"", b"[{}]", b"{}"])
def test_a_file_of_gpus_that_cannot_be_used_is_none(tmp_path: Path, content: bytes) -> None:
    assert GpusFile(tmp_path).load() is None
    (tmp_path / "gpus.json").write_bytes(content)
    assert GpusFile(tmp_path).load() is None


def test_gpus_that_do_not_change_are_not_written_again(tmp_path: Path) -> None:
    file = GpusFile(tmp_path)
    file.save(DriverReady((observed(0),)))
    (tmp_path / "gpus.json").unlink()
    file.save(DriverReady((observed(0, LOST),)))
    assert not (tmp_path / "gpus.json").exists()


def test_gpus_that_an_earlier_process_has_kept_are_not_written_again(tmp_path: Path) -> None:
    GpusFile(tmp_path).save(DriverReady((observed(0),)))
    file = GpusFile(tmp_path)
    file.load()
    (tmp_path / "gpus.json").unlink()
    file.save(DriverReady((observed(0),)))
    assert not (tmp_path / "gpus.json").exists()


def test_a_time_of_the_first_years_is_refused() -> None:
    """Nothing can be subtracted from it, so that no GPU could be judged."""
    fault = Fault(48, None, NOTICED, NOTICED, 1, "")
    record = written(RememberedHealth(HealthMemory({"GPU-1": {fault.key: fault}})))
    with pytest.raises(HealthRecordError, match="before 2000"):
        read(record.replace(str(NOTICED.year).encode(), b"0001"))
