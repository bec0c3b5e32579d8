"""Metrics of the shares of GPUs: what claims are given, and what carina-sharing says they use.

There is a series for each claim with a share, and one for each pod with processes on a shared GPU,
so their number is bounded by the pods of the node. A series has the labels of its pod and its claim
where that is one: several pods can use a claim, and a pod can have several claims on a GPU.
`carina_share_pod_info` has all pairs.
"""

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from carina_dra.config.enforcement import Levels
from carina_dra.sharing.message import PodUse, Reference, ShareUse, SharingReport, WantedShare
from kubelet_plugin.claim_status.live_claims import ClaimsNow
from kubelet_plugin.claim_status.readiness import Readiness, has_daemon, limited_gpus
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.share import Share
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.sharing.standing import printable
from kubelet_plugin.sharing.wanted import PodsOfClaims, shares_of

_MIB: Final = 2**20
_GPU: Final = ("gpu", "UUID", "pci_bus_id")
_SHARE: Final = (
    *_GPU,
    *("namespace", "pod", "container", "dra_claim_namespace", "dra_claim_name"),
)


@dataclass(frozen=True, slots=True)
class SharesNow:
    """What is known of the shares of the node."""

    shares: tuple[WantedShare, ...]
    report: SharingReport | None
    """None without carina-sharing."""
    gpus: dict[str, Gpu]
    """By UUID."""
    devices: dict[str, GpuDevice]
    claims: Mapping[str, NodeClaim]
    """By UID."""
    readiness: Mapping[str, Readiness]
    """By the UIDs of claims."""

    def labels(
        self, gpu: Gpu, pods: tuple[Reference, ...], claims: tuple[Reference, ...]
    ) -> tuple[str, ...]:
        """Returns the labels of what belongs to these pods and claims."""
        pod = pods[0] if len(pods) == 1 else None
        claim = claims[0] if len(claims) == 1 else None
        holder = pod or claim
        return (
            *_of_gpu(gpu),
            "" if holder is None else holder.namespace,
            "" if pod is None else pod.name,
            "",
            "" if claim is None else claim.namespace,
            "" if claim is None else claim.name,
        )

    def levels(self, uid: str, device: Share) -> Levels:
        """Returns what keeps a claim, by UID, within what it has of a device."""
        readiness, claim = self.readiness.get(uid), self.claims[uid]
        by_mps = any(own.uses_mps for own in claim.devices if own.device == device.name)
        return device.levels_in_force(
            limited=f"gpu-{device.gpu.minor}" in limited_gpus(readiness),
            mps=by_mps and has_daemon(readiness),
        )

    def uses(self) -> Iterator[tuple[Gpu, ShareUse, tuple[Reference, ...]]]:
        """Yields the uses of known GPUs by known claims, with their claims."""
        claims = {share.claim.uid: share.claim for share in self.shares}
        for use in () if self.report is None else self.report.uses:
            gpu = self.gpus.get(use.gpu)
            holders = tuple(claims[uid] for uid in use.claims if uid in claims)
            if gpu is not None and holders:
                yield gpu, use, holders


class ShareMetrics(Collector):
    """The metrics of the node's shares."""

    def __init__(
        self,
        now: Callable[[], ClaimsNow],
        report: Callable[[], SharingReport | None],
        pods: Callable[[], PodsOfClaims],
    ) -> None:
        """`report` returns None without carina-sharing."""
        self._now = now
        self._report = report
        self._pods = pods

    def collect(self) -> Iterator[Metric]:
        """Returns the metrics as they are now."""
        now = self._now()
        gpus = {name: seen.gpu.uuid for name, seen in now.gpus.gpus.items()}
        seen = SharesNow(
            shares_of(now.claims.values(), gpus, self._pods()),
            self._report(),
            {seen.gpu.uuid: seen.gpu for seen in now.gpus.gpus.values()},
            dict(now.gpus.devices),
            now.claims,
            now.readiness,
        )
        yield from _given(seen)
        yield from _used(seen)
        yield from _of_claims(seen)
        yield from _of_gpus(seen)


def _given(now: SharesNow) -> Iterator[Metric]:
    memory = GaugeMetricFamily(
        "carina_share_memory_given_bytes",
        "Memory of a GPU that a claim has by its shares.",
        labels=_SHARE,
    )
    cores = GaugeMetricFamily(
        "carina_share_cores_given_ratio",
        "Part of a GPU's cores that a claim has by its shares.",
        labels=_SHARE,
    )
    info = GaugeMetricFamily(
        "carina_share_info",
        "1 for each claim with a share of a GPU, with what enforces it (docs/enforcement.md).",
        labels=(*_SHARE, "memory_enforcement", "core_enforcement"),
    )
    pairs = GaugeMetricFamily(
        "carina_share_pod_info",
        "1 for each pod of a claim with a share of a GPU, as far as it is known.",
        labels=_SHARE,
    )
    for share in now.shares:
        gpu = now.gpus[share.gpu]
        labels = now.labels(gpu, share.pods, (share.claim,))
        memory.add_metric(labels, share.memory_mib * _MIB)
        cores.add_metric(labels, share.cores / 100)
        device = now.devices.get(f"gpu-{gpu.minor}-share")
        if isinstance(device, Share):
            levels = now.levels(share.claim.uid, device)
            info.add_metric((*labels, levels.strongest_memory, levels.strongest_cores), 1)
        names = {(pod.namespace, pod.name): pod for pod in share.pods}
        for pod in names.values():  # one that was made again counts once
            pairs.add_metric(now.labels(gpu, (pod,), (share.claim,)), 1)
    yield from (memory, cores, info, pairs)


def _used(now: SharesNow) -> Iterator[Metric]:
    memory = GaugeMetricFamily(
        "carina_share_memory_used_bytes",
        "Memory of a shared GPU that the processes of a pod use.",
        labels=_SHARE,
    )
    busy = GaugeMetricFamily(
        "carina_share_sm_utilization_ratio",
        "Part of a shared GPU's multiprocessors that the processes of a pod used in the last "
        "second, if the driver says it.",
        labels=_SHARE,
    )
    processes = GaugeMetricFamily(
        "carina_share_processes", "Processes of a pod on a shared GPU.", labels=_SHARE
    )
    unmeasured = GaugeMetricFamily(
        "carina_share_unmeasured_processes",
        "Those of them of whose memory the driver says nothing, which counts as none.",
        labels=_SHARE,
    )
    for gpu, use, claims in now.uses():
        for pods in _by_name(use.pods):
            labels = now.labels(gpu, (pods[0].pod,), claims)
            memory.add_metric(labels, sum(pod.memory_mib for pod in pods) * _MIB)
            processes.add_metric(labels, sum(pod.processes for pod in pods))
            unmeasured.add_metric(labels, sum(pod.unmeasured for pod in pods))
            known = [pod.sm_percent for pod in pods if pod.sm_percent is not None]
            if len(known) == len(pods):
                busy.add_metric(labels, sum(known) / 100)
    yield from (memory, busy, processes, unmeasured)


def _by_name(pods: Iterable[PodUse]) -> Collection[Sequence[PodUse]]:
    """Pods by their names: one that was made again has the series of the one before."""
    found: dict[tuple[str, str], list[PodUse]] = defaultdict(list)
    for pod in pods:
        found[pod.pod.namespace, pod.pod.name].append(pod)
    return found.values()


def _of_claims(now: SharesNow) -> Iterator[Metric]:
    exceeded = GaugeMetricFamily(
        "carina_share_memory_exceeded",
        "1 while the pods of a claim use more memory of a GPU than given, with a margin; else 0.",
        labels=_SHARE,
    )
    times = CounterMetricFamily(
        "carina_share_memory_exceeded_times",
        "How many times the pods of a claim have begun to use more memory of a GPU than given.",
        labels=_SHARE,
    )
    ended = CounterMetricFamily(
        "carina_share_processes_ended",
        "How many processes of a claim's pods carina-sharing has ended.",
        labels=_SHARE,
    )
    idle = GaugeMetricFamily(
        "carina_share_idle_since_timestamp_seconds",
        "Since when no process of a claim's pods has computed on a shared GPU; absent if one does.",
        labels=_SHARE,
    )
    shares = {(share.claim.uid, share.gpu): share for share in now.shares}
    for gpu, use, claims in now.uses():
        for claim in claims:
            share = shares.get((claim.uid, use.gpu))
            if share is None:
                continue
            labels = now.labels(gpu, share.pods, (claim,))
            exceeded.add_metric(labels, int(use.exceeded_since is not None))
            times.add_metric(labels, use.exceeded)
            ended.add_metric(labels, use.ended)
            if use.idle_since is not None:
                idle.add_metric(labels, use.idle_since)
    yield from (exceeded, times, ended, idle)


def _of_gpus(now: SharesNow) -> Iterator[Metric]:
    processes = GaugeMetricFamily(
        "carina_gpu_stranger_processes",
        "Processes on a shared GPU that are of no pod with a share of it.",
        labels=_GPU,
    )
    memory = GaugeMetricFamily(
        "carina_gpu_stranger_memory_bytes",
        "Memory that these processes use.",
        labels=_GPU,
    )
    unwatched = GaugeMetricFamily(
        "carina_gpu_unwatched_info",
        "1 for each shared GPU whose processes cannot be told, with the reason.",
        labels=(*_GPU, "reason"),
    )
    if now.report is not None:
        for group in now.report.strangers:
            if (gpu := now.gpus.get(group.gpu)) is not None:
                processes.add_metric(_of_gpu(gpu), group.processes)
                memory.add_metric(_of_gpu(gpu), group.memory_mib * _MIB)
        for blind in now.report.unwatched:
            if (gpu := now.gpus.get(blind.gpu)) is not None:
                unwatched.add_metric((*_of_gpu(gpu), printable(blind.reason)), 1)
    yield from (processes, memory, unwatched)


def _of_gpu(gpu: Gpu) -> tuple[str, str, str]:
    return str(gpu.minor), gpu.uuid, gpu.pci_bus_id
