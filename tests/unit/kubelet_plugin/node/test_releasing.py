"""How a release is carried out: what is written, published and said at each step."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.release import Phase, ReleaseAnswer
from kubelet_plugin.node.releasing import Releasing
from kubelet_plugin.node.view import NodeView, ReleaseAsked
from tests.eventually import eventually

_ASKED = NodeView(ReleaseAsked("new driver", evict_all=False))
_NOT_ASKED = NodeView()


class _Node:
    """A node whose plugin is started again in its place when it asks for it."""

    def __init__(self, folder: Path, phase: Phase = Phase.IN_SERVICE) -> None:
        self.file = PhaseFile(folder / "phase")
        self.file.store(phase)
        self.view: NodeView | None = _NOT_ASKED
        self.holders: Sequence[str] = ()
        self.tainted: bool | None = None
        self.published = True
        self.answers: list[ReleaseAnswer] = []
        self.failures: list[Exception] = []
        """What the next answers fail with."""
        self.restarts = 0
        self.start(nvml_is_closed=phase is Phase.RELEASED)

    def start(self, *, nvml_is_closed: bool) -> None:
        self.release = Releasing(
            self.file,
            view=lambda: self.view,
            holders=self._holders,
            taint=self._taint,
            is_published=lambda: self.published,
            answer=self._answer,
            restart=self._restart,
            nvml_is_closed=nvml_is_closed,
        )

    def _holders(self) -> Sequence[str]:
        # Who prepares a claim reads the phase first: no claim may come after the last look.
        assert self.file.read() is Phase.DRAINING
        return self.holders

    def _taint(self, tainted: bool) -> None:
        self.tainted = tainted

    def _answer(self, answer: ReleaseAnswer) -> None:
        if self.failures:
            raise self.failures.pop()
        self.answers.append(answer)

    def _restart(self) -> None:
        self.restarts += 1

    def said(self) -> str | None:
        return self.answers[-1].phase


@pytest.fixture
def node(tmp_path: Path) -> _Node:
    return _Node(tmp_path)


def test_a_node_that_nobody_asks_for_stays_in_service(node: _Node) -> None:
    assert node.release.step() is Phase.IN_SERVICE
    assert (node.tainted, node.said(), node.restarts) == (False, None, 0)


def test_nothing_is_done_before_the_node_was_read(node: _Node) -> None:
    node.view = None

    assert node.release.step() is Phase.IN_SERVICE
    assert node.answers == []


@pytest.mark.parametrize("phase", Phase)
def test_gpus_are_tainted_from_the_start_unless_they_are_in_service(
    tmp_path: Path, phase: Phase
) -> None:
    assert _Node(tmp_path, phase).tainted == (phase is not Phase.IN_SERVICE)


def test_it_drains_while_claims_are_prepared(node: _Node) -> None:
    node.view, node.holders = _ASKED, ["default/train"]

    assert node.release.step() is Phase.DRAINING
    assert (node.tainted, node.said(), node.restarts) == (True, "draining", 0)
    assert "default/train" in node.answers[-1].message


def test_it_drains_until_the_taint_is_published(node: _Node) -> None:
    node.view, node.published = _ASKED, False
    assert node.release.step() is Phase.DRAINING

    node.published = True
    assert node.release.step() is Phase.RELEASED


def test_the_plugin_starts_again_without_nvml_before_it_says_released(node: _Node) -> None:
    node.view = _ASKED

    assert node.release.step() is Phase.RELEASED
    assert (node.restarts, node.answers) == (1, [])
    assert node.file.read() is Phase.RELEASED

    node.start(nvml_is_closed=True)
    assert node.release.step() is Phase.RELEASED
    assert (node.restarts, node.said(), node.answers[-1].released) == (1, "released", True)


def test_the_plugin_starts_again_with_nvml_when_the_release_is_over(tmp_path: Path) -> None:
    node = _Node(tmp_path, Phase.RELEASED)

    assert node.release.step() is Phase.RESTORING
    assert (node.restarts, node.tainted) == (1, True)


def test_gpus_are_in_service_when_they_were_read_and_claims_checked(tmp_path: Path) -> None:
    node = _Node(tmp_path, Phase.RESTORING)
    assert node.release.step() is Phase.RESTORING
    assert (node.tainted, node.said()) == (True, "restoring")

    node.release.settle()
    assert node.release.step() is Phase.IN_SERVICE
    assert (node.tainted, node.said(), node.restarts) == (False, None, 0)


def test_a_phase_that_another_process_has_reached_is_followed(node: _Node) -> None:
    node.view = _ASKED
    node.file.store(Phase.RELEASED)

    assert node.release.step() is Phase.RELEASED
    assert (node.restarts, node.answers) == (1, [])


def test_a_phase_is_written_before_anything_follows_from_it(node: _Node) -> None:
    """Claims are read only while the file refuses further ones; see `_holders`."""
    node.view = _ASKED
    node.release.step()

    assert node.file.refuses_claims()


def test_the_thread_looks_when_it_is_asked_to_and_again_until_gpus_are_in_service(
    node: _Node,
) -> None:
    node.failures = [RuntimeError("a bug"), OSError("the disk is full")]
    node.release.start()
    node.release.settle()
    eventually(lambda: [said.phase for said in node.answers] == [None])

    node.holders, node.view = ["default/train"], _ASKED
    node.release.look()
    eventually(lambda: node.said() == "draining")
    node.view = _NOT_ASKED  # without a word: it looks every second now
    eventually(lambda: node.said() is None)
    assert node.file.read() is Phase.IN_SERVICE
