"""Carries out what `release` decides, in a thread.

NVML is closed, and loaded again, by another process in the place of this one: so nothing of the
driver can be left open, neither a file nor a library.
"""

import logging
import threading
from collections.abc import Callable, Sequence
from typing import Final

from carina_dra.kube.errors import ApiError
from kubelet_plugin.claims.failure import ClaimError
from kubelet_plugin.node.phase_file import PhaseFile
from kubelet_plugin.node.release import Phase, ReleaseAnswer, ReleaseFacts, answer, next_phase
from kubelet_plugin.node.view import NodeView

_INTERVAL: Final = 1.0
"""Seconds between two looks while the GPUs are not in service, and after a failure."""

_log = logging.getLogger(__name__)


class Releasing:
    """Follows what the Node asks for, until the process ends."""

    def __init__(
        self,
        phase: PhaseFile,
        *,
        view: Callable[[], NodeView | None],
        holders: Callable[[], Sequence[str]],
        taint: Callable[[bool], None],
        is_published: Callable[[], bool],
        answer: Callable[[ReleaseAnswer], None],
        restart: Callable[[], None],
        nvml_is_closed: bool,
    ) -> None:
        """All functions but `restart` are called repeatedly.

        `view` returns what the Node asks for, None until it was read; `holders`, the prepared
        claims on this node, and raises ClaimError. `taint` has the GPUs published with the taint,
        or without it, and `is_published` returns whether they are. `answer` has the Node say
        something, and raises ApiError. `restart` has the plugin start again in its place, soon.
        `nvml_is_closed` says whether this process keeps NVML closed, as one does that starts when
        the GPUs are released.

        Raises OSError: the phase cannot be read.
        """
        self._phase = phase
        self._view = view
        self._holders = holders
        self._taint = taint
        self._answer = answer
        self._restart = restart
        self._is_published = is_published
        self._nvml_is_closed = nvml_is_closed
        self._settled = False
        self._wanted = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-release", daemon=True)
        taint(phase.read() is not Phase.IN_SERVICE)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def look(self) -> None:
        """Requests a look at what the Node asks for, and returns before it."""
        self._wanted.set()

    def settle(self) -> None:
        """Says that GPUs were read, and prepared claims checked, since the start."""
        self._settled = True
        self._wanted.set()

    def _run(self) -> None:
        while True:
            self._wanted.clear()
            pause: float | None = _INTERVAL
            try:
                if self.step() is Phase.IN_SERVICE:
                    pause = None
            except (ApiError, ClaimError, OSError) as error:
                _log.warning("a release waits; retrying", extra={"reason": str(error)})
            except Exception:  # noqa: BLE001 - a bug is logged, and must not end the thread
                _log.exception("a release does not go on; retrying")
            self._wanted.wait(pause)

    def step(self) -> Phase:
        """Goes as far as possible, and returns the phase that is reached.

        Raises ApiError, ClaimError, OSError: it does not go on, and is to be tried again.
        """
        phase = self._phase.read()  # another plugin process may have changed it
        while not self._is_of_another_process(phase):
            view = self._view()
            if view is None:
                return phase
            holders = self._holders() if phase is Phase.DRAINING else ()
            self._taint(phase is not Phase.IN_SERVICE)
            facts = ReleaseFacts(view.release, holders, self._is_published(), self._settled)
            then = next_phase(phase, facts)
            if then is phase:
                self._answer(answer(phase, facts))
                return phase
            if then is Phase.RESTORING and self._nvml_is_closed:
                # The next process opens the driver: nobody may read by then that it is closed.
                self._answer(answer(then, facts))
            self._phase.store(then)
            _log.info("release of the node's GPUs", extra={"phase": str(then)})
            phase = then
        self._restart()
        return phase

    def _is_of_another_process(self, phase: Phase) -> bool:
        """Returns whether a process without NVML has to be one with it, or the reverse."""
        return (phase is Phase.RELEASED) != self._nvml_is_closed
