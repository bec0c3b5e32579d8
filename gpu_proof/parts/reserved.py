"""How much of the memory that shares promise together can be allocated."""

from collections.abc import Iterator
from typing import Final

from gpu_proof.bench import MIB, Bench
from gpu_proof.finding import Fact, NotTried, ProofFinding, ProofStatement, ProofVerdict, judged
from gpu_proof.need import Need
from gpu_proof.part import ProofPart
from kubelet_plugin.devices.share import shareable_mib
from sharing.use import memory_mib

_MISSING_PERCENT: Final = 1
_FREE_MIB: Final = 256
"""Memory that others may have of the GPU, which a driver without processes may say."""

PROMISED: Final = ProofStatement(
    "reserved-memory",
    "What a process can allocate, and its context, are what shares promise together, but for 1 %.",
)


def _run(bench: Bench) -> Iterator[ProofFinding]:
    promised = shareable_mib(bench.gpu)
    others = memory_mib(bench.processes())
    if promised is None or others > _FREE_MIB:
        reason = "the GPU says no memory" if promised is None else f"others have {others} MiB of it"
        yield ProofVerdict(PROMISED, NotTried(reason))
        return
    with bench.client() as client:
        client.get("attach")
        context = bench.memory(client.pid) // MIB
        had = int(client.get("fill", kind="cuMemAlloc", most=promised * MIB)) // MIB
        seen = client.get("total_memory") // MIB
    yield Fact("promised", "Memory that shares have together", f"{promised} MiB")
    yield Fact("allocated", "Memory that a process could allocate", f"{had} MiB")
    yield Fact("context", "Memory of its context", f"{context} MiB")
    yield Fact("cuda-total", "Size of the GPU, as CUDA says it", f"{seen:.0f} MiB")
    lacking = promised - had - context
    yield judged(
        PROMISED,
        f"{lacking} MiB of {promised} MiB are missing",
        holds=lacking * 100 <= promised * _MISSING_PERCENT,
    )


PART: Final = ProofPart("reserved", 180, (Need.GPU, Need.WHOLE, Need.CUDA), (PROMISED,), _run)
