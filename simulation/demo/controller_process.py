"""The real controller as a process, and what `carina queue` prints of its cluster."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from simulation.demo.carina_process import CarinaProcess
from simulation.demo.console import DemoError
from simulation.demo.manifests import REPOSITORY

_CONTROLLER: Final = "from controller.main import main; main()"
_CARINA_QUEUE: Final = """\
from carina_dra.cli.command import run
from controller.commands.listed import QUEUE
raise SystemExit(run(["queue"], {"queue": QUEUE}))
"""
"""Works without the installed console script, too."""


def start_controller(kubeconfig: Path, log: Path) -> CarinaProcess:
    """Starts the controller with the credentials of a kubeconfig."""
    flags = (f"--kubeconfig={kubeconfig}", "--identity=demo", "--http-address=off")
    return CarinaProcess.start("the controller", [sys.executable, "-c", _CONTROLLER, *flags], log)


def carina_queue(kubeconfig: Path) -> str:
    """What `carina queue` prints.

    Raises:
        DemoError: it fails.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CARINA_QUEUE],
        cwd=REPOSITORY,
        env={**os.environ, "KUBECONFIG": str(kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise DemoError(f"carina queue: {done.stderr.strip()}")
    return done.stdout
