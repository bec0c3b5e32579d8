"""A program from its arguments to its exit status."""

import socket
import subprocess
import sys
import threading
import urllib.request
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from carina_dra.kube.connection import Connection
from carina_dra.process import logs, termination
from carina_dra.process.cluster import connected
from carina_dra.process.program import ProgramError, run_program, served_http
from carina_dra.process.settings import ClusterSettings
from carina_dra.process.termination import Termination


class Settings(ClusterSettings):
    DESCRIPTION = "A program."


@pytest.fixture
def terminated(monkeypatch: pytest.MonkeyPatch) -> Termination:
    """The termination of the program; neither logs nor signals of this process are changed."""
    watched = Termination()
    monkeypatch.setattr(termination, "watch", lambda: watched)
    monkeypatch.setattr(logs, "configure", lambda *_: None)
    return watched


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Path:
    file = tmp_path / "kubeconfig"
    file.write_text(
        "{apiVersion: v1, kind: Config, current-context: c, users: [{name: u, user: {}}], "
        "clusters: [{name: a, cluster: {server: 'http://127.0.0.1:1'}}], "
        "contexts: [{name: c, context: {cluster: a, user: u}}]}"
    )
    return file


def test_it_runs_with_its_settings_and_its_connection(
    terminated: Termination, kubeconfig: Path
) -> None:
    ran: list[tuple[Settings, Connection, threading.Event]] = []
    flags = ["--kubeconfig", str(kubeconfig), "--driver-name", "a.example.com"]
    run_program("program", Settings, connected(lambda *given: ran.append(given)), flags)

    ((chosen, connection, stop),) = ran
    assert chosen.driver_name == "a.example.com"
    assert connection.server == "http://127.0.0.1:1"
    assert stop is terminated.stop


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        (["--driver-name", "-"], "program: driver_name is '-'"),
        (["--kubeconfig", "/missing"], "program: "),
        (["--service-account", "/missing"], "program: "),
    ],
)
@pytest.mark.usefixtures("terminated")
def test_invalid_settings_end_it_with_2(
    flags: list[str], problem: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise AssertionError

    with pytest.raises(SystemExit) as ended:
        run_program("program", Settings, connected(run), flags)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith(problem)


@pytest.mark.usefixtures("terminated")
def test_what_it_cannot_use_ends_it_with_1(
    kubeconfig: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def run(*_: object) -> None:
        raise ProgramError("the folder is missing; create it")

    with pytest.raises(SystemExit) as ended:
        run_program("program", Settings, connected(run), ["--kubeconfig", str(kubeconfig)])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "program: the folder is missing; create it\n"


def test_a_thread_that_failed_ends_it_with_1(terminated: Termination, kubeconfig: Path) -> None:
    with pytest.raises(SystemExit) as ended:
        run_program(
            "program",
            Settings,
            connected(lambda *_: terminated.failed.set()),
            ["--kubeconfig", str(kubeconfig)],
        )
    assert ended.value.code == 1


def _serve(address: str) -> AbstractContextManager[None]:
    return served_http(
        address,
        metrics=lambda: b"",
        content_type="text/plain",
        healthy=lambda: None,
        ready=lambda: "not yet",
    )


def test_the_endpoint_serves_inside_the_block_only() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    url = f"http://127.0.0.1:{port}/healthz"
    with _serve(f"127.0.0.1:{port}"), urllib.request.urlopen(url, timeout=10) as answer:
        assert answer.read() == b"ok"
    with pytest.raises(OSError, match="refused"):
        urllib.request.urlopen(url, timeout=10)


def test_a_taken_address_is_named_with_the_remedy() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        message = f"http_address {address} cannot be bound: .*; set it to a free HOST:PORT, or"
        with pytest.raises(ProgramError, match=message), _serve(address):
            pass


def test_off_serves_nothing() -> None:
    with _serve("off"):
        pass


@pytest.mark.parametrize(
    ("raised", "status", "said"),
    [
        ("SystemExit(3)", 3, ""),
        ("SystemExit()", 0, ""),
        ("SystemExit('no')", 1, "no\n"),
        ("ProgramError('it cannot go on')", 1, "program: it cannot go on\n"),
    ],
)
def test_a_process_ends_with_the_status_of_its_program_whatever_its_threads_do(
    kubeconfig: Path, raised: str, status: int, said: str
) -> None:
    code = f"""
import threading
from carina_dra.process.cluster import connected
from carina_dra.process.program import ProgramError, run_to_the_end
from carina_dra.process.settings import ClusterSettings

class Settings(ClusterSettings):
    DESCRIPTION = "A program."

def run(*_):
    threading.Thread(target=threading.Event().wait).start()
    raise {raised}

run_to_the_end("program", Settings, connected(run), ["--kubeconfig", {str(kubeconfig)!r}])
"""
    ended = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (ended.returncode, ended.stderr) == (status, said)
