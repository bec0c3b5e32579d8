"""Log records: one on each line, with its facts as fields."""

import json
import logging
import threading
from collections.abc import Iterator
from threading import Thread

import pytest

from carina_dra.process import logs


@pytest.fixture(autouse=True)
def _as_it_was() -> Iterator[None]:
    root = logging.getLogger()
    handlers, level = root.handlers, root.level
    yield
    root.handlers, root.level = handlers, level


def test_a_record_is_an_object_with_the_event_and_its_facts(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json", "info")
    logging.getLogger("kubelet_plugin.claims.lifecycle").info(
        "claim done", extra={"claim": "team/train"}
    )

    line = json.loads(capsys.readouterr().err)
    assert line.pop("timestamp").endswith("+00:00")
    assert line == {
        "level": "info",
        "logger": "kubelet_plugin.claims.lifecycle",
        "event": "claim done",
        "claim": "team/train",
    }


def test_records_of_libraries_have_the_same_format(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "warning")
    logging.getLogger("urllib3").warning("lost %s of %d", "one", 3)

    line = json.loads(capsys.readouterr().err)
    assert (line["logger"], line["event"]) == ("urllib3", "lost one of 3")


@pytest.mark.parametrize("log_format", ["json", "text"])
def test_an_exception_has_its_traceback(
    capsys: pytest.CaptureFixture[str], log_format: logs.LogFormat
) -> None:
    logs.configure(log_format, "info")
    try:
        int("of all things")
    except ValueError:
        logging.getLogger("x").exception("a bug")

    said = capsys.readouterr().err
    assert "Traceback" in said
    assert "ValueError: invalid literal" in said


@pytest.mark.usefixtures("_threads_as_they_were")
def test_an_exception_that_ends_a_thread_is_one_record_and_reported(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json", "info")
    failed: list[bool] = []
    logs.report_failed_threads(lambda: failed.append(True))

    def work() -> None:
        raise LookupError("of all things")

    thread = Thread(target=work, name="poller")
    thread.start()
    thread.join()

    line = json.loads(capsys.readouterr().err)
    assert (line["level"], line["event"]) == ("critical", "a thread failed")
    assert line["thread_name"] == "poller"
    assert "LookupError: of all things" in line["exception"]
    assert failed == [True]


@pytest.fixture
def _threads_as_they_were() -> Iterator[None]:
    hook = threading.excepthook
    yield
    threading.excepthook = hook


def test_text_is_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("text", "info")
    logging.getLogger("x").info("serving", extra={"driver": "gpu.carina.dev", "sockets": 2})

    assert capsys.readouterr().err.endswith(" info    serving driver='gpu.carina.dev' sockets=2\n")


def test_records_below_the_level_are_not_logged(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "warning")
    logging.getLogger("x").info("serving")

    assert capsys.readouterr().err == ""


def test_values_that_json_cannot_represent_are_logged_as_text(
    capsys: pytest.CaptureFixture[str],
) -> None:
    logs.configure("json", "info")
    logging.getLogger("x").info("odd", extra={"path": b"\xff"})

    assert json.loads(capsys.readouterr().err)["path"] == "b'\\xff'"
