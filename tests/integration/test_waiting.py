"""The plugin on a node without a GPU: what it costs, and when it becomes the whole plugin."""

import re
import signal
import socket
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from carina_dra.sharing.files import FILES
from tests.eventually import eventually
from tests.integration.plugin_host import Host, running_host

_AS_DEPLOYED = {"PYTHONOPTIMIZE": "2", "MALLOC_ARENA_MAX": "1"}
"""What deploy/kubelet-plugin.yaml sets for the sake of memory."""
_MOST_MIB = 30
"""It takes 21 MiB, of which the interpreter has 9 and asyncio 8. An import of a large library of
the plugin, such as pydantic, exceeds the bound."""
_SLOTS = range(8)


@pytest.fixture
def host(monkeypatch: pytest.MonkeyPatch) -> Iterator[Host]:
    """A node that has neither GPUs nor a driver yet."""
    for name, value in _AS_DEPLOYED.items():
        monkeypatch.setenv(name, value)
    with running_host() as host:
        host.gpus.uninstall_driver()
        for minor in _SLOTS:
            host.gpus.unplug(minor)
        yield host


def _waits(host: Host) -> bool:
    return "this node has no GPU; waiting for one" in host.log.read_text()


def _free_port() -> int:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        return int(bound.getsockname()[1])


def _get(port: int, path: str) -> tuple[int, str]:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/{path}") as answer:
        return answer.status, answer.read().decode()


def test_a_node_without_a_gpu_costs_little_memory(host: Host) -> None:
    port = _free_port()
    process = host.launch("--http-address", f"127.0.0.1:{port}")
    eventually(lambda: _waits(host))

    answers = {path: _get(port, path) for path in ("healthz", "readyz", "metrics")}

    assert answers == {"healthz": (200, "ok"), "readyz": (200, "ok"), "metrics": (200, "")}
    status = Path(f"/proc/{process.pid}/status").read_text()
    resident = re.search(r"VmRSS:\s+(\d+) kB", status)
    assert resident is not None
    assert int(resident[1]) / 1024 <= _MOST_MIB


def test_files_of_carina_sharing_do_not_say_that_the_plugin_has_run(host: Host) -> None:
    host.plugin.mkdir(parents=True)
    for name in FILES:
        (host.plugin / name).touch()
    host.launch()
    eventually(lambda: _waits(host))


def test_a_plugged_in_gpu_starts_the_plugin(host: Host) -> None:
    process = host.launch()
    eventually(lambda: _waits(host))
    assert not host.sockets()

    host.gpus.plug(3)
    host.gpus.driver(available=True)

    eventually(host.has_whole_pool)
    eventually(host.sockets)
    assert process.poll() is None


def test_a_driver_alone_starts_the_plugin(host: Host) -> None:
    host.launch()
    eventually(lambda: _waits(host))
    host.gpus.driver(available=True)
    eventually(host.sockets)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it(host: Host, number: signal.Signals) -> None:
    process = host.launch()
    eventually(lambda: _waits(host))
    process.send_signal(number)
    assert process.wait(timeout=30) == 0


def test_a_signal_during_the_change_to_the_plugin_ends_it(host: Host) -> None:
    process = host.launch()
    eventually(lambda: _waits(host))
    host.gpus.plug(0)
    eventually(lambda: "starting the plugin" in host.log.read_text())
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=30) == 0


def test_a_plugin_that_has_run_on_the_node_starts_at_once(host: Host) -> None:
    host.plugin.mkdir(parents=True)
    (host.plugin / "checkpoint.jsonl").write_text("")
    host.start()
    assert not _waits(host)
