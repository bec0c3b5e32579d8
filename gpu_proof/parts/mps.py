"""Two shares of the GPU, each with an MPS daemon of its own that carina-sharing runs."""

import os
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, suppress
from functools import partial
from pathlib import Path
from typing import Final

from gpu_proof.bench import MIB, Bench, tried
from gpu_proof.client import ClientError, CudaClient
from gpu_proof.cuda import AllocatingCall
from gpu_proof.filling import Starting, escapes, held
from gpu_proof.finding import Fact, ProofFinding, ProofStatement, judged, untried
from gpu_proof.mps_share import MpsShare, mps_share
from gpu_proof.need import Need
from gpu_proof.part import ProofPart
from gpu_proof.sharing_process import SharingError, SharingProcess
from kubelet_plugin.devices.levels import MPS_CAPABILITY, MPS_DRIVER, has_mps
from kubelet_plugin.inventory.gpu import Gpu
from sharing.use import memory_mib

_READY: Final = 60.0
_THREADS: Final = 50
"""Percent of the multiprocessors that each of the two shares has."""
_COARSE: Final = 8
"""Multiprocessors to which the driver may round."""
_KERNEL: Final = 0.005
"""Seconds that a kernel takes on the whole GPU."""
_TURNS: Final = 6.0
"""Seconds for which turns are counted."""
_FAIR: Final = (0.75, 1.33)
_SLOWER: Final = 0.8

READY: Final = ProofStatement(
    "mps-ready", "carina-sharing starts a daemon for each of two shares, and both become ready."
)
KINDS: Final[dict[AllocatingCall, ProofStatement]] = {
    kind: ProofStatement(
        f"mps-{kind}", f"A process gets no more than its share's limit with {kind}."
    )
    for kind in ("cuMemAlloc", "cuMemCreate", "cuMemAllocAsync")
}
ENVIRONMENT: Final = ProofStatement(
    "mps-environment", "The environment of a process cannot raise the limits of its share."
)
REPORTED: Final = ProofStatement(
    "mps-multiprocessors", "CUDA says no more multiprocessors than the percentage of the share."
)
SLOWER: Final = ProofStatement(
    "mps-throughput",
    "With a percentage of the multiprocessors, the same work takes as much longer.",
)
OUTSIDE: Final = ProofStatement(
    "mps-outside",
    "A process without the variable of the pipes is seen as computing outside of MPS.",
)
TURNS: Final = ProofStatement(
    "mps-turns", "A share with one process and a share with three get equal turns (3:4 to 4:3)."
)
KILLED: Final = ProofStatement(
    "mps-kill", "A client that is killed while it computes does not touch those of the other share."
)
FAULT: Final = ProofStatement(
    "mps-fault", "An illegal access of a client does not touch those of the other share."
)
RESTARTED: Final = ProofStatement(
    "mps-restart", "After its daemon was killed, the share has one again whose limits hold."
)
STATEMENTS: Final = (
    READY, *KINDS.values(), ENVIRONMENT, REPORTED, SLOWER, OUTSIDE, TURNS, KILLED, FAULT, RESTARTED,
)  # fmt: skip


def _run(bench: Bench) -> Iterator[ProofFinding]:
    if (reason := _unfit(bench.gpu)) is not None:
        yield from untried(STATEMENTS, reason)
        return
    with bench.sharing() as sharing:
        sharing.want()
        offers = sharing.report(lambda _: True, within=_READY, what="anything").offers
        if offers.no_mps is not None:
            yield from untried(STATEMENTS, f"carina-sharing runs no daemons: {offers.no_mps}")
            return
        first = mps_share(bench, sharing, "first", bench.share_mib, _THREADS)
        second = mps_share(bench, sharing, "second", bench.share_mib, _THREADS)
        ready = tried(READY, partial(_ready, sharing, (first, second)))
        yield ready
        if ready.outcome.result == "proven":
            yield from _shares(bench, first, second)


def _unfit(gpu: Gpu) -> str | None:
    """Why the product runs no MPS on this GPU."""
    if has_mps(gpu):
        return None
    capability = ".".join(map(str, MPS_CAPABILITY))
    return (
        f"MPS is used from driver {MPS_DRIVER} and compute capability {capability} on, and this is "
        f"driver {gpu.driver_version} and {gpu.product_name}"
    )


def _ready(sharing: SharingProcess, shares: Sequence[MpsShare]) -> tuple[bool, str]:
    began = time.monotonic()
    sharing.want(daemons=[share.wanted for share in shares])
    sharing.report(
        lambda report: all(share.is_ready(report) for share in shares),
        within=_READY,
        what="that both daemons are ready",
    )
    return True, f"after {time.monotonic() - began:.1f} s"


def _shares(bench: Bench, first: MpsShare, second: MpsShare) -> Iterator[ProofFinding]:
    for kind, statement in KINDS.items():
        yield tried(statement, partial(held, first.client, kind, first.limit))
    sentence = "What cuMemAllocManaged gets beyond the limit, which MPS does not count"
    yield Fact("mps-managed", sentence, escapes(first.client, first.limit))
    yield tried(ENVIRONMENT, partial(_environment, first))
    yield from _threads(bench, first)
    yield tried(OUTSIDE, partial(_outside, bench, first))
    yield from _cost(bench, first)
    yield from _turns(bench, first, second)
    yield tried(KILLED, partial(_untouched, first, second, _kill))
    yield Fact("mps-after-kill", "A new client of the share whose client was killed", _new(first))
    yield tried(FAULT, partial(_untouched, first, second, _fault))
    yield Fact("mps-after-fault", "A new client of the share whose client faulted", _new(first))
    yield tried(RESTARTED, partial(_restarted, first))


def _environment(share: MpsShare) -> tuple[bool, str]:
    raised = {
        "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT": f"0={4 * share.limit // MIB}M",
        "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE": "100",
    }
    holds, measured = held(partial(share.client, **raised), "cuMemAlloc", share.limit)
    with share.client() as plain, share.client(**raised) as other:
        without, with_them = int(plain.get("attach")), int(other.get("attach"))
    return holds and with_them <= without, f"{measured}; {with_them} multiprocessors"


def _threads(bench: Bench, share: MpsShare) -> Iterator[ProofFinding]:
    with bench.client() as outside:
        whole = int(outside.get("attach"))
        blocks = 2 * whole
        rounds = int(outside.get("rounds", blocks=blocks, seconds=10 * _KERNEL))
        alone = outside.get("work", rounds=rounds, blocks=blocks)
    with share.client() as inside:
        part = int(inside.get("attach"))
        inside.get("work", rounds=rounds, blocks=blocks)
        limited = inside.get("work", rounds=rounds, blocks=blocks)
    given = whole * _THREADS // 100
    measured = f"{part} of {whole} multiprocessors, for {_THREADS} %"
    yield judged(REPORTED, measured, holds=part < whole and part <= given + _COARSE)
    times = limited / alone
    measured = f"{times:.2f} times as long, for {_THREADS} %"
    yield judged(SLOWER, measured, holds=times >= 100 / _THREADS * _SLOWER)


def _outside(bench: Bench, share: MpsShare) -> tuple[bool, str]:
    with share.client() as inside, bench.client() as outside:
        inside.get("attach")
        outside.get("attach")

        within, without = bench.process(inside.pid), bench.process(outside.pid)
    if within is None or without is None:
        return False, "the driver does not list both"
    measured = f"outside of MPS: {without.outside_mps}; inside: {within.outside_mps}"
    return without.outside_mps and not within.outside_mps, measured


def _cost(bench: Bench, share: MpsShare) -> Iterator[ProofFinding]:
    with share.client() as client:
        client.get("attach")
        servers = share.servers()
        host = sum(map(_resident_kib, servers)) // 1024
        gpu = memory_mib(process for process in bench.processes() if process.pid in servers)
    yield Fact("mps-host-memory", "Resident memory of a daemon and its server", f"{host} MiB")
    yield Fact("mps-gpu-memory", "GPU memory of a daemon and its server", f"{gpu} MiB")


def _resident_kib(pid: int) -> int:
    with suppress(OSError):  # it has ended
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1])
    return 0


def _turns(bench: Bench, first: MpsShare, second: MpsShare) -> Iterator[ProofFinding]:
    def ratio(alone: Starting, three: Starting) -> tuple[bool, str]:
        with ExitStack() as running:
            clients = [running.enter_context(start()) for start in (alone, *[three] * 3)]
            done = _work_together(clients)
        quotient = done[0] / max(sum(done[1:]), 1)
        return _FAIR[0] <= quotient <= _FAIR[1], f"{done[0]} against {done[1:]}: {quotient:.2f}"

    yield tried(TURNS, partial(ratio, first.client, second.client))
    try:
        _, without = ratio(bench.client, bench.client)
    except ClientError as error:
        without = str(error)
    yield Fact("turns-without-mps", "Work done by one process beside three, without MPS", without)


def _work_together(clients: Sequence[CudaClient]) -> list[int]:
    """How many kernels each of them does in the same time."""
    multiprocessors = max(int(client.get("attach")) for client in clients)
    blocks = 2 * multiprocessors
    rounds = int(clients[0].get("rounds", blocks=blocks, seconds=_KERNEL))
    begin = time.monotonic() + 1
    for client in clients:
        client.begin("work_between", rounds=rounds, blocks=blocks, begin=begin, end=begin + _TURNS)
    answers = [client.answer() for client in clients]
    for answer in answers:
        if answer.error is not None:
            raise ClientError(answer.error)
    return [int(answer.value) for answer in answers]


def _untouched(
    share: MpsShare, other: MpsShare, harm: Callable[[CudaClient], str]
) -> tuple[bool, str]:
    """Harms a client of a share while one of another one computes."""
    with share.client() as harmed, other.client() as beside:
        blocks = 2 * int(beside.get("attach"))
        harmed.get("attach")
        rounds = int(beside.get("rounds", blocks=blocks, seconds=_KERNEL))
        begin = time.monotonic()
        work = {"rounds": rounds, "blocks": blocks, "begin": begin, "end": begin + _TURNS}
        beside.begin("work_between", **work)
        harmed.get("work_between", **{**work, "end": begin + 1})
        said = harm(harmed)
        answer = beside.answer()
        beside.get("allocate", kind="cuMemAlloc", size=16 * MIB)
        beside.get("work", rounds=rounds, blocks=blocks)
    measured = f"{said}; the other did {answer.value:.0f} kernels, error {answer.error}"
    return answer.error is None and answer.value > 0, measured


def _kill(client: CudaClient) -> str:
    begin = time.monotonic()
    client.begin("work_between", rounds=10**9, blocks=10_000, begin=begin, end=begin + _TURNS)
    time.sleep(_KERNEL)
    client.kill()
    return "killed"


def _fault(client: CudaClient) -> str:
    return f"fault: {client.call('fault').error}"


def _new(share: MpsShare) -> str:
    try:
        with share.client() as client:
            client.get("attach")
            client.get("work", rounds=1000, blocks=1)
    except ClientError as error:
        return str(error)
    return "computes"


def _restarted(share: MpsShare) -> tuple[bool, str]:
    before = share.servers()
    if not before:
        raise SharingError(f"the daemon has no process in {share.cgroup}")
    for pid in before:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    began = time.monotonic()
    share.sharing.report(
        partial(share.is_ready, restarts=1),
        within=_READY,
        what="that the daemon is ready again",
    )
    took = time.monotonic() - began
    holds, measured = held(share.client, "cuMemAlloc", share.limit)
    return holds, f"ready after {took:.1f} s; {measured}"


PART: Final = ProofPart(
    "mps",
    540,
    (Need.GPU, Need.WHOLE, Need.CUDA, Need.ROOT, Need.CGROUPS),
    STATEMENTS,
    _run,
)
