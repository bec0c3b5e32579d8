"""Shares and processes to write tests with."""

from carina_dra.sharing.message import (
    MpsDevice,
    Reference,
    WantedDaemon,
    WantedShare,
    WantedShares,
)
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


def wanted(
    *shares: WantedShare, generation: int = 1, daemons: tuple[WantedDaemon, ...] = ()
) -> WantedShares:
    return WantedShares(generation=generation, shares=shares, daemons=daemons)


def process(
    pod: str | None,
    memory_mib: int | None,
    sm_percent: int | None = 0,
    *,
    pid: int = 1,
    started: int = 1,
    runs: bool = True,
    outside_mps: bool = False,
) -> GpuProcess:
    return GpuProcess(
        pid=pid,
        started=started,
        runs=runs,
        pod_uid=None if pod is None else f"{pod}-uid",
        container_id=None,
        memory=None if memory_mib is None else memory_mib * MIB,
        sm_percent=sm_percent,
        outside_mps=outside_mps,
    )


def wanted_daemon(claim: str, gpu: str = "GPU-0") -> WantedDaemon:
    return WantedDaemon(
        claim=reference(claim),
        devices=(MpsDevice(uuid=gpu, memory_mib=1000),),
        thread_percentage=10,
    )
