"""Sets the length of a GPU's time slices with `nvidia-smi compute-policy`.

NVML has no call for it. The program is that of the installed driver, and runs in this process's
container with the driver's libnvidia-ml.
"""

import os
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from carina_dra.config.time_slice import TimeSliceInterval, interval_number
from carina_dra.nvidia.driver_search import DriverSearch, programs
from carina_dra.nvidia.rooted_path import RootedPath
from kubelet_plugin.claims.resource_failure import (
    NvidiaSmiFailed,
    NvidiaSmiHangs,
    NvidiaSmiMissing,
    TimeSlicesUnsupported,
)
from kubelet_plugin.prepare.resource import ResourceError

_PROGRAM: Final = "nvidia-smi"
_PATIENCE: Final = 30.0
"""Seconds after which the program is ended."""
_DYING: Final = 1.0
"""Seconds in which a killed program ends, unless the kernel driver keeps it."""
_SHOWN: Final = 300
"""Characters of the program's output that a message shows."""


class PolicyUnchangedError(ResourceError):
    """The compute policy could not be changed, and is certainly what it was."""


class ComputePolicy:
    """The compute policy of the GPUs of a driver."""

    def __init__(self, search: DriverSearch) -> None:
        """`search` finds the installed driver."""
        self._search = search
        self._not_ended: dict[str, subprocess.Popen[bytes]] = {}

    def set_time_slice(self, uuid: str, interval: TimeSliceInterval) -> None:
        """Sets the length of the time slices of a GPU, until the driver is reloaded.

        Raises:
            PolicyUnchangedError: the program is missing, or fails.
            ResourceError: the program does not end, or is killed. While one that was killed still
                runs, no other is started for its GPU.
        """
        task = f"time slices of {uuid} cannot be set to {interval}"
        self._refuse_hanging(uuid, task)
        location = self._search.location()
        program = None if location is None else _first(programs(location.path, _PROGRAM))
        if program is None:
            root = self._search.roots if location is None else str(location.path)
            raise PolicyUnchangedError(NvidiaSmiMissing(task, root))
        number = str(interval_number(interval))
        command = [program, "compute-policy", "-i", uuid, "--set-timeslice", number]
        library = _first(self._search.nvml_libraries())
        environment = os.environ | ({} if library is None else {"LD_PRELOAD": library})
        try:
            status, output = self._run(uuid, command, environment)
        except (OSError, subprocess.TimeoutExpired) as error:
            raise ResourceError(NvidiaSmiFailed(task, str(error), " ".join(command))) from error
        if status != 0:
            said = " ".join(output.decode(errors="replace").split())[-_SHOWN:]
            problem = f"{_PROGRAM} ended with {status}: {said or 'no output'}"
            unsupported = "not supported" in said.lower()
            cause = TimeSlicesUnsupported if unsupported else NvidiaSmiFailed
            # After a signal, it is not known what the program has done.
            error_type = PolicyUnchangedError if status > 0 else ResourceError
            raise error_type(cause(task, problem, " ".join(command)))

    def _run(
        self, uuid: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> tuple[int, bytes]:
        """Returns the exit status and the output of the program.

        A process that waits for a GPU that hangs cannot be killed. So this does not wait for it, as
        `subprocess.run` does. Raises OSError, and TimeoutExpired.
        """
        process = subprocess.Popen(  # noqa: S603 - the driver's program
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            output, _ = process.communicate(timeout=_PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            if process.stdout is not None:
                process.stdout.close()
            try:
                process.wait(_DYING)
            except subprocess.TimeoutExpired:
                self._not_ended[uuid] = process
            raise
        return process.returncode, output

    def _refuse_hanging(self, uuid: str, task: str) -> None:
        process = self._not_ended.pop(uuid, None)
        if process is not None and process.poll() is None:
            self._not_ended[uuid] = process
            raise ResourceError(NvidiaSmiHangs(task, process.pid))


def _first(paths: Iterable[RootedPath]) -> str | None:
    """Returns the first path that exists, as this process sees it."""
    for path in paths:
        try:
            located = path.locate()
            if located.is_file():
                return str(located)
        except OSError:
            continue  # a loop of links
    return None
