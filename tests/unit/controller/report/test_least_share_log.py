"""A least share that is none is logged when it comes, and seldom."""

import logging
from typing import Any

import pytest

from carina_dra.resource import ResourceSlice, decode
from controller.report.least_share_log import LeastShareLog

_DRIVER = "gpu.carina.dev"


def _slice(said: dict[str, Any] | None, driver: str = _DRIVER, kind: str = "mig") -> ResourceSlice:
    attributes = {"type": {"string": kind}, **({} if said is None else {"leastShare": said})}
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 1}
    devices = [{"name": "gpu-0", "attributes": attributes}]
    spec = {"driver": driver, "nodeName": "n", "pool": pool, "devices": devices}
    return decode(ResourceSlice, {"metadata": {"name": "s"}, "spec": spec})


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> LeastShareLog:
    caplog.set_level(logging.WARNING)
    return LeastShareLog({_DRIVER})


@pytest.mark.parametrize("said", [{"string": "half"}, {"string": "1/9999"}, {"int": 0}])
def test_slice_device_and_what_it_says_are_logged_once(
    log: LeastShareLog, caplog: pytest.LogCaptureFixture, said: dict[str, Any]
) -> None:
    for now in (0, 1000):
        log.note("s", _slice(said), now)

    (record,) = caplog.records
    facts = record.__dict__
    assert (facts["slice"], facts["device"], facts["counts"]) == ("s", "gpu-0", "1/10")
    assert repr(next(iter(said.values()))) in facts["said"]


@pytest.mark.parametrize(
    "fine",
    [
        _slice(None),
        _slice({"string": "1/7"}),
        _slice({"string": "half"}, driver="nic.example.com"),
        _slice({"string": "half"}, kind="nic"),
    ],
    ids=["none", "valid", "other driver", "no GPU"],
)
def test_what_counts_as_it_says_is_not_logged(
    log: LeastShareLog, caplog: pytest.LogCaptureFixture, fine: ResourceSlice
) -> None:
    log.note("s", fine, 0)

    assert caplog.records == []


def test_what_comes_again_after_it_was_corrected_is_logged_again(
    log: LeastShareLog, caplog: pytest.LogCaptureFixture
) -> None:
    wrong = _slice({"string": "half"})
    for now, seen in enumerate([wrong, _slice({"string": "1/2"}), wrong, None, wrong]):
        log.note("s", seen, now)

    assert len(caplog.records) == 3


def test_a_node_that_changes_it_all_the_time_fills_no_log(
    log: LeastShareLog, caplog: pytest.LogCaptureFixture
) -> None:
    for now in range(600):
        log.note("s", _slice({"int": now}), now)

    assert len(caplog.records) <= 20 + 600 / 60
