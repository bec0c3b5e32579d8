"""Limits of the memory of a cgroup, which drivers enforce from r615 on."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Final

from gpu_proof.bench import MIB, Bench, tried
from gpu_proof.cuda import AllocatingCall
from gpu_proof.filling import escapes, held
from gpu_proof.finding import Fact, ProofFinding, ProofStatement, judged, untried
from gpu_proof.need import Need
from gpu_proof.part import ProofPart
from kubelet_plugin.nvml.memory_limits import read_limit, set_limit

READ_BACK: Final = ProofStatement(
    "kernel-limit-set", "The limit that is set on the cgroup of a pod is read back."
)
KINDS: Final[dict[AllocatingCall, ProofStatement]] = {
    kind: ProofStatement(
        f"kernel-{kind}", f"A process of the pod gets no more than the limit with {kind}."
    )
    for kind in ("cuMemAlloc", "cuMemCreate", "cuMemAllocAsync")
}
TOGETHER: Final = ProofStatement(
    "kernel-together", "Two processes of the pod together get no more than the limit."
)
OUTSIDE: Final = ProofStatement(
    "kernel-others", "A process outside of the pod gets more than the limit at the same time."
)
STATEMENTS: Final = (READ_BACK, *KINDS.values(), TOGETHER, OUTSIDE)


def _run(bench: Bench) -> Iterator[ProofFinding]:
    if not bench.gpu.memory_limits:
        version = bench.gpu.driver_version
        reason = f"driver {version} limits no cgroup; drivers do from r615 on"
        yield from untried(STATEMENTS, reason)
        return
    limit = bench.share_mib * MIB
    with bench.pod() as (_, pod):
        with bench.library.lease():
            set_limit(bench.handle(), pod, limit)
            found = read_limit(bench.handle(), pod)
        yield judged(READ_BACK, f"{found} bytes for {limit} bytes", holds=found == limit)
        inside = partial(bench.client, cgroups=(pod,))
        for kind, statement in KINDS.items():
            yield tried(statement, partial(held, inside, kind, limit))
        yield tried(TOGETHER, partial(_together, bench, pod, limit))
        yield tried(OUTSIDE, partial(_outside, bench, pod, limit))
        sentence = "What cuMemAllocManaged gets beyond the limit, which no document denies it"
        yield Fact("kernel-managed", sentence, escapes(inside, limit))
        with inside() as client:
            total = client.get("total_memory") // MIB
        yield Fact("kernel-reported", "Size of the GPU, as CUDA says it inside", f"{total:.0f} MiB")


def _together(bench: Bench, pod: Path, limit: int) -> tuple[bool, str]:
    with bench.client(cgroups=(pod,)) as first, bench.client(cgroups=(pod,)) as second:
        first.get("attach")
        second.get("attach")
        half = int(first.get("fill", kind="cuMemAlloc", most=limit // 2))
        rest = int(second.get("fill", kind="cuMemAlloc", most=2 * limit))
    measured = f"{half // MIB} and {rest // MIB} MiB, with a limit of {limit // MIB} MiB"
    return half + rest <= limit and rest > 0, measured


def _outside(bench: Bench, pod: Path, limit: int) -> tuple[bool, str]:
    with bench.client(cgroups=(pod,)) as inside, bench.client() as outside:
        inside.get("fill", kind="cuMemAlloc", most=2 * limit)
        had = int(outside.get("fill", kind="cuMemAlloc", most=limit + 512 * MIB))
    return had > limit, f"{had // MIB} MiB"


PART: Final = ProofPart(
    "kernel-limits",
    300,
    (Need.GPU, Need.WHOLE, Need.CUDA, Need.ROOT, Need.CGROUPS),
    STATEMENTS,
    _run,
)
