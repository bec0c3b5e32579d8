"""Shares and processes to write tests with."""

from carina_dra.sharing.message import Reference, WantedShare, WantedShares
from sharing.use import GpuProcess

MIB = 2**20


def reference(name: str) -> Reference:
    return Reference(namespace="default", name=name, uid=f"{name}-uid")


def share(claim: str, *pods: str, gpu: str = "GPU-0", memory_mib: int = 1000) -> WantedShare:
    return WantedShare(
        claim=reference(claim),
        gpu=gpu,
        memory_mib=memory_mib,
        cores=10,
        pods=tuple(reference(pod) for pod in pods),
    )


def wanted(*shares: WantedShare, generation: int = 1) -> WantedShares:
    return WantedShares(generation=generation, shares=shares)


def process(pod: str | None, memory_mib: int, sm_percent: int | None = 0) -> GpuProcess:
    uid = None if pod is None else f"{pod}-uid"
    return GpuProcess(1, uid, None, memory_mib * MIB, sm_percent)
