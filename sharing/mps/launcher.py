"""The program that becomes an MPS daemon: `python -m sharing.mps.launcher ORDER`.

ORDER is JSON, as `order` makes it. The process moves to the daemon's cgroups, gets a mount
namespace in which the daemon's shm is at /dev/shm, and executes the daemon. If that fails, it
writes the reason to a pipe, which the daemon does not have.

Until it is in the daemon's cgroup, it ends with its parent, so that no daemon comes to be that
nobody knows.
"""

import ctypes
import json
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from sharing.mps.mounts import bind_in_own_namespace

_PR_SET_PDEATHSIG: Final = 1
_SHM: Final = Path("/dev/shm")  # noqa: S108 - where shm_open(3) has its files
_MOST_WORDS: Final = 500


def order(
    program: Path,
    environment: Mapping[str, str],
    *,
    entrances: Sequence[Path],
    shm: Path,
    parent: int,
    words: int,
) -> str:
    """Returns the argument of the launcher; `words` is the pipe's descriptor."""
    return json.dumps(
        {
            "program": str(program),
            "environment": dict(environment),
            "entrances": [str(path) for path in entrances],
            "shm": str(shm),
            "parent": parent,
            "words": words,
        }
    )


def main() -> None:
    """Executes the daemon, or writes why not and exits with 1."""
    what = json.loads(sys.argv[1])
    os.set_inheritable(what["words"], False)  # noqa: FBT003 - its signature
    try:
        _end_with_parent(signal.SIGKILL)
        if os.getppid() != what["parent"]:
            sys.exit(1)
        for path in what["entrances"]:
            Path(path).write_text("0")
        _end_with_parent(0)
        Path("/proc/self/oom_score_adj").write_text("0")  # not that of carina-sharing, which is low
        bind_in_own_namespace(Path(what["shm"]), _SHM)
        os.chdir("/")
        command = [what["program"], "-f", "-M"]
        os.execve(what["program"], command, what["environment"])  # noqa: S606 - the driver's program
    except OSError as error:
        os.write(what["words"], str(error).encode()[:_MOST_WORDS])
        sys.exit(1)


def _end_with_parent(number: int) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, number, 0, 0, 0)


if __name__ == "__main__":
    main()
