"""Runs parts, each in a process of its own within its time, and removes what they made.

Exit status: 0 if nothing was disproven, 1 if something was, 2 for wrong arguments, 3 if a part
broke off or something could not be removed.
"""

import argparse
import os
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NoReturn

from gpu_proof import own_cgroups, own_folder
from gpu_proof.bench import ProofPlace
from gpu_proof.finding import FINDING, Fact, PartReport, ProofFinding, part_report
from gpu_proof.mps_share import daemons_cgroup
from gpu_proof.part import ProofPart
from gpu_proof.part_process import PLACE
from gpu_proof.parts.listed import PARTS
from gpu_proof.report import REPORT, ProofReport, markdown, summary

_MACHINE_SECONDS: Final = 60.0
_REMOVED_WITHIN: Final = 30.0
_SAID: Final = 600
"""Characters of the end of a part's log, in its report."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the parts that are asked for, and returns the exit status."""
    options = _parser().parse_args(arguments)
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _end)
    began = datetime.now(UTC).isoformat(timespec="seconds")
    left: list[str] = []
    with _place(options, left) as place:
        machine = [
            found for found in _run(place, (), _MACHINE_SECONDS).findings if isinstance(found, Fact)
        ]
        reports = []
        for name in options.part or PARTS:
            reports.append(_report(PARTS[name], place, options.seconds))
            print(summary(reports[-1]), flush=True)
    report = ProofReport(began, machine, reports, left)
    if options.report is not None:
        options.report.mkdir(parents=True, exist_ok=True)
        (options.report / "gpu-proof.json").write_bytes(REPORT.dump_json(report, indent=2))
        (options.report / "gpu-proof.md").write_text(markdown(report))
    for what in left:
        print(f"left behind: {what}", file=sys.stderr)
    return report.status


def _end(number: int, _frame: object) -> NoReturn:
    """What was begun is removed on the way out, which a second signal must not end."""
    for known in (signal.SIGTERM, signal.SIGINT):
        signal.signal(known, signal.SIG_IGN)
    raise SystemExit(128 + number)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpu_proof",
        description="Proves on a machine with an NVIDIA GPU what tests without one simulate. "
        "It changes no mode of the GPU, and removes what it makes.",
    )
    parser.add_argument("--part", action="append", choices=tuple(PARTS), help="this part only")
    parser.add_argument("--report", type=Path, metavar="FOLDER", help="where the report is written")
    parser.add_argument(
        "--seconds", type=float, help="after which a part is ended; default: up to 540, by part"
    )
    parser.add_argument("--gpu", metavar="UUID", help="the GPU; default: the first")
    parser.add_argument(
        "--driver-root", type=Path, metavar="FOLDER", help="where the driver is; default: searched"
    )
    parser.add_argument(
        "--host-root", type=Path, metavar="FOLDER", default=Path("/"),
        help="folder with the host's dev, sys and proc",
    )  # fmt: skip
    parser.add_argument(
        "--run-module", metavar="COMMAND", type=shlex.split, default=[sys.executable, "-m"],
        help="command that runs a Python module, whose name is added",
    )  # fmt: skip
    return parser


@contextmanager
def _place(options: argparse.Namespace, left: list[str]) -> Iterator[ProofPlace]:
    """Makes a folder and a cgroup, and removes all that is in them after the block.

    What cannot be removed is added to `left`.
    """
    name = f"proof-{os.getpid()}.dev"  # short, since paths of sockets have limits
    with ExitStack() as made:
        folder = own_folder.make()
        made.callback(_remove_folder, folder, left)
        root = own_cgroups.mount()
        cgroup = None
        if root is not None:
            with suppress(OSError):  # no right to: parts that need it are not tried
                cgroup = own_cgroups.make(root)
            made.callback(_remove_cgroup, daemons_cgroup(root, name), left)
        if cgroup is not None:
            made.callback(_remove_cgroup, cgroup, left)
        yield ProofPlace(
            module=tuple(options.run_module),
            folder=folder,
            driver_name=name,
            host_root=options.host_root,
            driver_root=options.driver_root,
            cgroup_root=root,
            cgroup=cgroup,
            gpu=options.gpu,
        )


def _remove_cgroup(cgroup: Path, left: list[str]) -> None:
    if not own_cgroups.remove(cgroup, _REMOVED_WITHIN):
        left.append(f"cgroup {cgroup}, whose processes do not end: {own_cgroups.pids(cgroup)}")


def _remove_folder(folder: Path, left: list[str]) -> None:
    if (what := own_folder.remove(folder)) is not None:
        left.append(what)


def _report(part: ProofPart, place: ProofPlace, seconds: float | None) -> PartReport:
    began = time.monotonic()
    run = _run(place, (part.name,), seconds or part.seconds)
    took = time.monotonic() - began
    return part_report(part.name, took, part.statements, run.findings, run.broke_off)


@dataclass(frozen=True, slots=True)
class _Run:
    """What came of the process of a part, which has ended with all that it started."""

    findings: Sequence[ProofFinding]
    broke_off: str | None


def _run(place: ProofPlace, names: Sequence[str], seconds: float) -> _Run:
    """Runs the process of a part; without a name, that of the machine."""
    command = [*place.module, "gpu_proof.part_process", *names, PLACE.dump_json(place).decode()]
    said, log = place.folder / "findings", place.folder / "log"
    with said.open("wb") as output, log.open("wb") as errors:
        process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=errors,
            start_new_session=True,
        )
        try:
            process.wait(seconds)
            broke_off = None
        except subprocess.TimeoutExpired:
            broke_off = f"it did not end within {seconds:g} s"
        finally:
            _end_part(process, place)
    if process.returncode and broke_off is None:
        broke_off = f"exit status {process.returncode}: {log.read_text()[-_SAID:].strip()}"
    lines = said.read_bytes().splitlines(keepends=True)
    whole = (line for line in lines if line.endswith(b"\n"))
    return _Run([FINDING.validate_json(line) for line in whole], broke_off)


def _end_part(process: "subprocess.Popen[bytes]", place: ProofPlace) -> None:
    """Ends the process of a part, and all that it started."""
    if process.poll() is None:  # so its ID and that of its session are still its own
        os.killpg(process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):  # in a call of the driver: it stays behind
            process.wait(_REMOVED_WITHIN)
    if place.cgroup is not None:
        own_cgroups.end(place.cgroup / "processes", _REMOVED_WITHIN)
