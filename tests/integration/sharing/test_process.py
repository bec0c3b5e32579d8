"""The process from its start to its end: what it keeps, when it holds NVML, what it survives."""

import json
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from functools import partial

import pytest

from carina_dra.sharing.files import DAMAGED, SOCKET
from carina_dra.sharing.message import MessageError, SharingReport
from tests.eventually import eventually
from tests.integration.sharing.site import MIB, Site, site


@pytest.fixture
def node() -> Iterator[Site]:
    with site("/kubepods") as made:
        yield made


def test_it_holds_nvml_only_while_a_gpu_is_shared(node: Site) -> None:
    process = node.start()
    with node.connected() as plugin:
        plugin.report(lambda report: True)
        assert node.gpus.processes_with_nvml() == set()
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)
        assert node.gpus.processes_with_nvml() == {process.pid}
        plugin.want()
        plugin.report(lambda report: not report.uses)
        assert node.gpus.processes_with_nvml() == set()


def test_it_goes_on_after_it_was_killed(node: Site) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)
    node.processes[0].kill()
    node.processes[0].wait()
    node.start()
    with node.connected() as plugin:
        plugin.use("a", lambda use: use.given_mib == 1000)


def test_a_damaged_file_is_set_aside_and_the_plugin_says_it_again(node: Site) -> None:
    node.plugin_folder.mkdir(parents=True)
    node.wanted_file.write_bytes(b"{")
    node.start()
    assert (node.plugin_folder / DAMAGED).read_bytes() == b"{"
    assert "is damaged and was set aside" in node.log
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)


def test_a_file_that_cannot_be_written_keeps_nothing_from_being_watched(node: Site) -> None:
    node.start()
    (node.plugin_folder / "sharing.json.new").mkdir()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)
    assert "what is to be watched cannot be recorded" in node.log


def test_the_last_of_several_plugins_counts(node: Site) -> None:
    node.start()
    with node.connected() as old, node.connected() as new:
        old.want(node.share("a", "a"))
        old.report(lambda report: report.uses)
        new.want(node.share("b", "b"))
        for plugin in (old, new):
            plugin.use("b", lambda use: True)


def test_a_call_that_hangs_keeps_neither_the_socket_nor_sigterm(node: Site) -> None:
    process = node.start()
    node.gpus.hang("nvmlDeviceGetComputeRunningProcesses_v3")
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        report = plugin.report(lambda report: report.unwatched)
        assert "does not return" in report.unwatched[0].reason
        with node.connected() as other:
            other.report(lambda report: report.unwatched)
        node.gpus.release("nvmlDeviceGetComputeRunningProcesses_v3")
        plugin.report(lambda report: report.uses)
        node.gpus.hang("nvmlDeviceGetComputeRunningProcesses_v3")
        plugin.report(lambda report: report.unwatched)
        process.terminate()
        assert process.wait(30) == 0
    assert not (node.plugin_folder / SOCKET).exists()


def test_a_lost_gpu_is_unwatched_until_it_answers_again(node: Site) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"), node.share("b", "b", minor=1))
        plugin.report(lambda report: len(report.uses) == 2)
        node.gpus.lose_gpu(0)
        report = plugin.report(lambda report: report.unwatched)
        assert report.unwatched[0].gpu == node.uuid(0)
        assert [use.gpu for use in report.uses] == [node.uuid(1)]
        node.gpus.reset_gpu(0)
        plugin.report(lambda report: len(report.uses) == 2)


def test_without_a_driver_it_waits_for_one(node: Site) -> None:
    node.gpus.driver(available=False)
    node.start()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        report = plugin.report(lambda report: report.unwatched)
        assert "NVML_ERROR_DRIVER_NOT_LOADED" in report.unwatched[0].reason
        node.gpus.driver(available=True)
        plugin.report(lambda report: report.uses)


def test_after_another_driver_was_installed_it_starts_again_in_its_place(node: Site) -> None:
    process = node.start()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)
        plugin.want()
        plugin.report(lambda report: not report.uses)
        node.gpus.replace_driver("580.65.06")
        plugin.want(node.share("a", "a"))
        eventually(lambda: "the process starts again" in node.log)
    eventually(lambda: _watches(node))
    assert process.poll() is None


def _watches(node: Site) -> bool:
    """Whether a process that serves the socket sees uses."""
    try:
        with node.connected() as plugin:
            return bool(SharingReport.parse(plugin.lines.readline()).uses)
    except (OSError, MessageError):  # it is being replaced
        return False


def test_its_probes_answer(node: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    node.start("--http-address", f"127.0.0.1:{port}")
    for path in ("healthz", "readyz", "metrics"):
        eventually(partial(_answers, f"http://127.0.0.1:{port}/{path}"))


def test_its_metrics_say_that_it_samples(node: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/metrics"
    node.start("--http-address", url.removeprefix("http://").removesuffix("/metrics"))
    eventually(lambda: _answers(url))
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)
    with urllib.request.urlopen(url, timeout=30) as answer:
        said = answer.read().decode()
    assert "carina_sharing_samples_total 0.0" not in said
    assert 'carina_sharing_processes_ended_total{why="memory"} 0.0' in said
    assert "carina_sharing_driver_hangs 0.0" in said


def test_it_is_not_healthy_without_its_socket(node: Site) -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        url = f"http://127.0.0.1:{free.getsockname()[1]}/healthz"
    node.start("--http-address", url.removeprefix("http://").removesuffix("/healthz"))
    eventually(lambda: _answers(url))
    (node.plugin_folder / SOCKET).unlink()
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(url, timeout=30)
    assert "is not the socket of this process any more" in caught.value.read().decode()


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=30) as answer:
            return bool(answer.status == 200)
    except urllib.error.URLError:
        return False  # it does not listen yet


def test_processes_that_it_cannot_tell_are_strangers(node: Site) -> None:
    node.start()
    pid = node.sleeper()
    node.gpus.run_process(0, pid, memory=300 * MIB, sm_percent=20)
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        report = plugin.report(lambda report: report.strangers)
    assert (report.strangers[0].processes, report.strangers[0].memory_mib) == (1, 300)


def test_it_says_what_it_is_told_in_its_file(node: Site) -> None:
    node.start()
    with node.connected() as plugin:
        plugin.want(node.share("a", "a"))
        plugin.report(lambda report: report.uses)
    assert json.loads(node.wanted_file.read_text())["shares"][0]["claim"]["name"] == "a"
