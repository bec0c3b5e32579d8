"""A plugin that is killed at any step of a release or a restore goes on where it was.

The steps are enumerated, not sampled: a process is killed before its n-th step that others can see,
and after it, for every n. What others can see are the file, the taint, what the Node says, and
whether NVML is open. Then another process starts, as the kubelet has it do.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.release import Phase, ReleaseAnswer
from kubelet_plugin.node.releasing import Releasing
from kubelet_plugin.node.view import NodeView, ReleaseAsked

_ASKED = NodeView(ReleaseAsked("new driver", evict_all=False))
_NOT_ASKED = NodeView()
_FAR = 100


class _Killed(BaseException):
    """The process is no more."""


class _Replaced(BaseException):
    """The process has executed itself again."""


class _Phases(PhaseFile):
    def __init__(self, path: Path, step: Callable[[Callable[[], None]], None]) -> None:
        super().__init__(path)
        self._step = step

    def store(self, phase: Phase) -> None:
        self._step(lambda: super(_Phases, self).store(phase))


@dataclass
class _World:
    """What outlasts a process, and the process that runs."""

    path: Path
    view: NodeView = _NOT_ASKED
    holders: list[str] = field(default_factory=list)
    tainted: bool = False
    said: ReleaseAnswer | None = None
    nvml_is_open: bool = False
    killed_at: int = _FAR
    after: bool = False
    """Whether the process is killed after that step, instead of before it."""
    steps: int = 0

    @property
    def phase(self) -> Phase:
        return PhaseFile(self.path).read()

    def _step(self, does: Callable[[], None]) -> None:
        self.steps += 1
        if self.steps == self.killed_at and not self.after:
            raise _Killed
        does()
        self._check()
        if self.steps == self.killed_at:
            raise _Killed

    def _check(self) -> None:
        """What must hold at any time."""
        if self.said is not None and self.said.released:
            assert not self.nvml_is_open
        if not self.nvml_is_open:
            assert not self.holders
        if not self.tainted:
            assert self.phase in (Phase.IN_SERVICE, Phase.DRAINING)
        if self.phase is Phase.RELEASED:
            assert self.tainted

    def _taint(self, tainted: bool) -> None:
        if tainted != self.tainted:
            self._step(lambda: setattr(self, "tainted", tainted))

    def _answer(self, answer: ReleaseAnswer) -> None:
        if answer != self.said:
            self._step(lambda: setattr(self, "said", answer))

    def _execute(self) -> None:
        def replace() -> None:
            raise _Replaced

        self._step(replace)

    def run(self) -> None:
        """Runs processes, one after another, until one has nothing left to do."""
        for _ in range(_FAR):
            try:
                self._process()
            except (_Killed, _Replaced):
                continue
            return
        pytest.fail("it starts again and again")

    def _process(self) -> None:
        closed = self.phase is Phase.RELEASED
        self.nvml_is_open = not closed
        self._check()
        release = Releasing(
            _Phases(self.path, self._step),
            view=lambda: self.view,
            holders=lambda: self.holders,
            taint=self._taint,
            is_published=lambda: True,
            answer=self._answer,
            restart=self._execute,
            nvml_is_closed=closed,
        )
        if not closed:
            release.settle()
        release.step()


_KILLS = [(number, after) for number in range(1, 9) for after in (False, True)]


@pytest.mark.parametrize(("number", "after"), _KILLS)
def test_release_goes_on_after_a_kill_at_each_step(
    tmp_path: Path, number: int, after: bool
) -> None:
    world = _World(tmp_path / "phase", killed_at=number, after=after)
    world.view = _ASKED
    world.run()

    assert world.said is not None
    assert world.said.released
    assert (world.phase, world.tainted, world.nvml_is_open) == (Phase.RELEASED, True, False)


@pytest.mark.parametrize(("number", "after"), _KILLS)
def test_restore_goes_on_after_a_kill_at_each_step(
    tmp_path: Path, number: int, after: bool
) -> None:
    world = _World(tmp_path / "phase", view=_ASKED)
    world.run()
    world.steps, world.killed_at, world.after = 0, number, after
    world.view = _NOT_ASKED
    world.run()

    assert world.said is not None
    assert (world.said.phase, world.said.released) == (None, False)
    assert (world.phase, world.tainted, world.nvml_is_open) == (Phase.IN_SERVICE, False, True)


@pytest.mark.parametrize(("number", "after"), _KILLS)
def test_claims_keep_their_driver_whenever_the_plugin_is_killed(
    tmp_path: Path, number: int, after: bool
) -> None:
    world = _World(tmp_path / "phase", killed_at=number, after=after, holders=["t/train"])
    world.view = _ASKED
    world.run()

    assert (world.phase, world.tainted, world.nvml_is_open) == (Phase.DRAINING, True, True)


def test_no_step_is_left_out(tmp_path: Path) -> None:
    world = _World(tmp_path / "phase", view=_ASKED)
    world.run()
    released, world.steps, world.view = world.steps, 0, _NOT_ASKED
    world.run()

    assert max(released, world.steps) < max(number for number, _ in _KILLS)
