"""Whether the kubelet that registered the plugin still runs."""

import contextlib
import socket
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from kubelet_plugin.kubelet.presence import (
    CannotTell,
    KubeletState,
    Listening,
    NotListening,
    Registered,
    absence,
    kubelet_socket,
)

BEFORE = Listening(7, 100.0)


@pytest.fixture
def root() -> Iterator[Path]:
    """The kubelet's root."""
    with tempfile.TemporaryDirectory(prefix="c") as folder:  # short: sockets' paths have limits
        (Path(folder) / "pod-resources").mkdir()
        yield Path(folder)


def _listen(root: Path) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX)
    listening.bind(str(root / "pod-resources/kubelet.sock"))
    listening.listen()
    return listening


@pytest.mark.parametrize("now", [BEFORE, CannotTell()])
def test_a_kubelet_that_registered_the_plugin_knows_it_however_long_it_is_silent(
    now: KubeletState,
) -> None:
    assert absence(Registered(BEFORE, 110.0), now) is None


def test_a_kubelet_that_has_not_registered_the_plugin_does_not_know_it() -> None:
    assert "not registered" in str(absence(None, BEFORE))


def test_the_kubelet_that_registered_the_plugin_knows_it_also_if_the_clock_was_set_back() -> None:
    assert absence(Registered(Listening(7, 3600.0), 110.0), Listening(7, 3600.0)) is None


def test_a_kubelet_that_ended_does_not_know_it() -> None:
    assert "does not run" in str(absence(Registered(BEFORE, 110.0), NotListening()))


def test_a_kubelet_that_started_again_does_not_know_it_before_it_registers_it() -> None:
    again = Listening(8, 200.0)
    assert "started again" in str(absence(Registered(BEFORE, 110.0), again))
    assert absence(Registered(again, 205.0), again) is None


@pytest.mark.parametrize("then", [NotListening(), BEFORE])
def test_a_kubelet_may_register_plugins_before_it_makes_its_own_socket(then: KubeletState) -> None:
    assert absence(Registered(then, 200.0), Listening(8, 203.0)) is None


def test_a_kubelet_that_listens_is_seen_and_one_that_starts_again_is_another(root: Path) -> None:
    look = kubelet_socket(root)
    with _listen(root):
        first = look()
        assert isinstance(first, Listening)
        assert look() == first
    assert look() == NotListening()
    (root / "pod-resources/kubelet.sock").unlink()
    assert look() == NotListening()
    with _listen(root):
        assert look() != first


def test_without_the_folder_of_its_socket_nothing_is_known_of_it(root: Path) -> None:
    assert kubelet_socket(root / "elsewhere")() == CannotTell()


def test_of_a_socket_to_which_nobody_may_connect_nothing_is_known(root: Path) -> None:
    long = root / ("l" * 100)  # the path of a socket has 107 bytes at most
    (long / "pod-resources").mkdir(parents=True)
    assert kubelet_socket(long)() == CannotTell()


def test_a_kubelet_that_accepts_no_connection_is_not_waited_for(root: Path) -> None:
    with _listen(root) as listening, contextlib.ExitStack() as clients:
        listening.listen(0)
        with contextlib.suppress(BlockingIOError):
            while True:
                client = clients.enter_context(socket.socket(socket.AF_UNIX))
                client.setblocking(False)
                client.connect(str(root / "pod-resources/kubelet.sock"))
        assert kubelet_socket(root)() == CannotTell()
