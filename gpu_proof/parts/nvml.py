"""What NVML says of the GPU, read by the product: its memory, its levels, its processes."""

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from gpu_proof.bench import MIB, Bench, poll, tried
from gpu_proof.finding import Fact, NotTried, ProofFinding, ProofStatement, ProofVerdict, judged
from gpu_proof.need import Need
from gpu_proof.part import ProofPart
from kubelet_plugin.devices.levels import detected_levels
from kubelet_plugin.devices.share import shareable_mib

_ALLOCATED: Final = 512 * MIB
_TOLERATED: Final = 16 * MIB
_TESTS: Final = 240.0
_REPOSITORY: Final = Path(__file__).parents[2]

MEMORY: Final = ProofStatement(
    "nvml-memory",
    "The driver says the memory of the GPU and what it reserves of it, and the rest is shared out.",
)
LISTED: Final = ProofStatement(
    "nvml-lists-process",
    "A process that computes is listed with the PID by which it is known here.",
)
GROWS: Final = ProofStatement(
    "nvml-process-memory",
    "The memory that the driver says of a process grows by what it allocates, within 16 MiB.",
)
FREED: Final = ProofStatement(
    "nvml-ended-process",
    "A process that was killed is not listed any more, and its memory is free again.",
)
TESTS: Final = ProofStatement(
    "gpu-tests", "The tests of the repository that need a GPU pass (pytest -m gpu)."
)


def _run(bench: Bench) -> Iterator[ProofFinding]:
    gpu = bench.gpu
    mib = shareable_mib(gpu)
    reserved = gpu.memory_reserved_bytes // MIB
    total = (gpu.memory_bytes or 0) // MIB
    measured = f"{total} MiB, of which {reserved} MiB reserved; shares have {mib} MiB together"
    yield judged(MEMORY, measured, holds=mib is not None and 0 < reserved < total // 4)
    levels = detected_levels(gpu, bench.state)
    for resource, found in (("memory", levels.memory), ("cores", levels.cores)):
        sentence = f"Levels of enforcement of {resource} that the plugin detects"
        yield Fact(f"levels-{resource}", sentence, ", ".join(sorted(found)) or "none")
    yield from _processes(bench)
    yield _tests()


def _processes(bench: Bench) -> Iterator[ProofFinding]:
    free = bench.used_memory() + _TOLERATED
    with bench.client() as client:
        client.get("attach")
        listed = bench.process(client.pid)
        others = ", ".join(str(process.pid) for process in bench.processes())
        yield judged(LISTED, f"PID {client.pid}; listed: {others}", holds=listed is not None)
        if listed is None:
            return
        context = bench.memory(client.pid)
        sentence = "Memory of a process that has a context of CUDA and nothing else"
        yield Fact("context-memory", sentence, f"{context // MIB} MiB")

        def grows() -> tuple[bool, str]:
            client.get("allocate", kind="cuMemAlloc", size=_ALLOCATED)
            grown = bench.memory(client.pid) - context
            measured = f"{grown // MIB} MiB for {_ALLOCATED // MIB} MiB"
            return abs(grown - _ALLOCATED) <= _TOLERATED, measured

        yield tried(GROWS, grows)
        began = time.monotonic()
        client.kill()
        gone = poll(lambda: _is_gone(bench, client.pid, free) or None, 10.0)
        took = time.monotonic() - began
        yield judged(FREED, f"after {took:.2f} s", holds=gone is not None)


def _is_gone(bench: Bench, pid: int, free: int) -> bool:
    listed = any(process.pid == pid for process in bench.processes())
    return not listed and bench.used_memory() <= free


def _tests() -> ProofFinding:
    if not (_REPOSITORY / "tests").is_dir():
        return ProofVerdict(TESTS, NotTried("the tests are not beside this package"))
    command = [sys.executable, "-m", "pytest", "-q", "-m", "gpu", "tests/contract"]
    try:
        done = subprocess.run(  # noqa: S603 - our own tests
            command, cwd=_REPOSITORY, capture_output=True, text=True, timeout=_TESTS, check=False
        )
    except subprocess.TimeoutExpired:
        return judged(TESTS, f"not within {_TESTS:g} s", holds=False)
    said = (done.stdout or done.stderr).strip().splitlines()
    last = said[-1] if said else f"exit status {done.returncode}"
    if "No module named pytest" in done.stderr or (" passed" not in last and "skipped" in last):
        return ProofVerdict(TESTS, NotTried(last))
    return judged(TESTS, last, holds=done.returncode == 0)


PART: Final = ProofPart(
    "nvml", 480, (Need.GPU, Need.WHOLE, Need.CUDA), (MEMORY, LISTED, GROWS, FREED, TESTS), _run
)
