"""What the GPUs of a node and their shares use, read from the metrics of its plugin. Pure.

The metrics are untrusted text: numbers that are none are left out, and names are cut.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, Literal, TypeAlias

from prometheus_client.parser import text_string_to_metric_families

from carina_dra.text_table import columns
from kubelet_plugin.sharing.words import memory_in_words

_READ: Final = (
    *("carina_gpu_info{", "carina_gpu_memory_", "carina_gpu_utilization_ratio{"),
    *("carina_gpu_stranger_", "carina_gpu_unwatched_info{", "carina_share_"),
    "carina_sharing_connected",
)
_HEADINGS: Final = ("NODE", "GPU", "DEVICE", "CLAIM", "POD", "MEMORY", "SM", "ENFORCED", "IDLE")
_MIB: Final = 2**20
_PERCENT: Final = 0.01
_LARGEST: Final = 2.0**64
"""More than any amount that a GPU has; so sums are finite, too: JSON has no other numbers."""
_LONGEST: Final = 60
"""Letters of a cell."""
_SHOWN: Final = 3
"""Names in a cell."""

UsageKind: TypeAlias = Literal["gpu", "mig", "share", "strangers"]
HolderName: TypeAlias = tuple[str, str]
"""Namespace and name."""


class MetricsError(ValueError):
    """The text is not that of metrics; says why."""


@dataclass(frozen=True, slots=True)
class DeviceUsage:
    """What a GPU, a partition, or those who share a GPU use of it."""

    node: str
    gpu: int
    """Minor number."""
    uuid: str
    kind: UsageKind
    device: str
    """The kind, or the profile of a partition."""
    claims: tuple[HolderName, ...] = ()
    pods: tuple[HolderName, ...] = ()
    memory_used: float | None = None
    """Bytes; None if it is not known."""
    memory_given: float | None = None
    sm_used: float | None = None
    """From 0 to 1."""
    sm_given: float | None = None
    memory_enforcement: str = ""
    """As the attribute of the device has it; empty if there is no limit to enforce."""
    exceeded: bool = False
    """Whether more memory is used than given, with a margin."""
    exceeded_times: int = 0
    ended: int = 0
    """How many processes carina-sharing has ended."""
    idle_since: float | None = None
    """In seconds since 1970."""


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What one node says."""

    node: str
    watched: bool
    """Whether carina-sharing is there."""
    unwatched: Mapping[str, str] = field(default_factory=dict)
    """Why processes cannot be told, by `gpu-<minor>`."""
    devices: tuple[DeviceUsage, ...] = ()


@dataclass(frozen=True, slots=True)
class _Sample:
    metric: str
    labels: Mapping[str, str]
    value: float

    @property
    def claim(self) -> HolderName | None:
        return self._name("dra_claim_namespace", "dra_claim_name")

    @property
    def pod(self) -> HolderName | None:
        return self._name("namespace", "pod")

    def _name(self, namespace: str, name: str) -> HolderName | None:
        found = self.labels.get(name, "")
        return (self.labels.get(namespace, ""), found) if found else None


@dataclass(slots=True)
class _Holder:
    """What is said of a claim or a pod on a GPU."""

    values: dict[str, float] = field(default_factory=dict)
    enforcement: str = ""


def node_usage(node: str, text: str) -> NodeUsage:
    """Reads the metrics of the plugin of a node.

    Raises:
        MetricsError: they cannot be read.
    """
    by_gpu: dict[str, list[_Sample]] = defaultdict(list)
    watched, unwatched = False, {}
    for sample in _samples(text):
        by_gpu[sample.labels.get("UUID", "")].append(sample)
        if sample.metric == "carina_sharing_connected":
            watched = sample.value == 1
        elif sample.metric == "carina_gpu_unwatched_info":
            unwatched[f"gpu-{_minor(sample)}"] = sample.labels.get("reason", "")
    of_gpus = (
        usage
        for uuid, samples in by_gpu.items()
        if uuid
        for usage in _of_gpu(node, uuid, samples, watched=watched)
    )
    order = {"gpu": 0, "mig": 1, "share": 2, "strangers": 3}
    devices = sorted(
        of_gpus, key=lambda usage: (usage.gpu, order[usage.kind], usage.device, usage.claims)
    )
    return NodeUsage(node, watched, unwatched, tuple(devices))


def lines(nodes: Sequence[NodeUsage], unreadable: Mapping[str, str], now: float) -> Iterator[str]:
    """The usage for people: a table, and what is not known."""
    rows = [_row(device, now) for node in nodes for device in node.devices]
    yield from columns(_HEADINGS, rows) if rows else ["no node has a GPU"]
    for node in nodes:
        shared = any(device.kind == "share" for device in node.devices)
        if shared and not node.watched:
            yield (f"{node.node}: carina-sharing does not run, so what its shares use is not known")
        for gpu, reason in sorted(node.unwatched.items()):
            yield f"{node.node}: the processes of {gpu} cannot be told: {reason}"
    for name, reason in sorted(unreadable.items()):
        yield f"{name}: not read: {reason}"


def document(nodes: Sequence[NodeUsage], unreadable: Mapping[str, str]) -> Mapping[str, Any]:
    """The usage for programs. Memory is in bytes, parts of a GPU are from 0 to 1."""
    return {
        "nodes": [
            {"node": node.node, "watched": node.watched, "unwatched": dict(node.unwatched)}
            for node in nodes
        ],
        "devices": [_entry(device) for node in nodes for device in node.devices],
        "unreadable": [
            {"node": name, "reason": reason} for name, reason in sorted(unreadable.items())
        ],
    }


def _samples(text: str) -> Iterator[_Sample]:
    wanted = "\n".join(line for line in text.split("\n") if line.startswith(_READ))
    try:
        for family in text_string_to_metric_families(wanted + "\n"):
            for sample in family.samples:
                if abs(sample.value) <= _LARGEST:
                    yield _Sample(sample.name, sample.labels, sample.value)
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise MetricsError(f"its metrics cannot be read: {error}") from error


def _of_gpu(
    node: str, uuid: str, samples: Sequence[_Sample], *, watched: bool
) -> Iterator[DeviceUsage]:
    parts: dict[str, list[_Sample]] = defaultdict(list)
    shares = []
    strangers: dict[str, float] = {}
    for sample in samples:
        if sample.metric.startswith("carina_share_"):
            shares.append(sample)
        elif sample.metric.startswith("carina_gpu_stranger_"):
            strangers[sample.metric] = sample.value
        else:
            parts[sample.labels.get("GPU_I_ID", "")].append(sample)
    gpu = _minor(samples[0])
    for instance, said in parts.items():
        yield _of_part(DeviceUsage(node, gpu, uuid, "gpu", "gpu"), instance, said)
    template = DeviceUsage(node, gpu, uuid, "share", "share")
    yield from _shares(template, shares, watched=watched)
    if strangers.get("carina_gpu_stranger_processes"):
        yield DeviceUsage(
            node,
            gpu,
            uuid,
            "strangers",
            "strangers",
            memory_used=strangers.get("carina_gpu_stranger_memory_bytes"),
        )


def _of_part(template: DeviceUsage, instance: str, said: Sequence[_Sample]) -> DeviceUsage:
    """Returns the usage of a whole GPU, or of a partition, which has an instance."""
    values = {sample.metric: sample.value for sample in said}
    claims = {sample.claim for sample in said if sample.claim is not None}
    profile = next((found for s in said if (found := s.labels.get("GPU_I_PROFILE"))), "mig")
    return replace(
        template,
        kind="mig" if instance else "gpu",
        device=profile if instance else "gpu",
        claims=tuple(sorted(claims)),
        memory_used=values.get("carina_gpu_memory_used_bytes"),
        memory_given=values.get("carina_gpu_memory_total_bytes"),
        sm_used=values.get("carina_gpu_utilization_ratio"),
    )


def _shares(
    template: DeviceUsage, samples: Sequence[_Sample], *, watched: bool
) -> Iterator[DeviceUsage]:
    """Yields the usage of those who have their shares of a GPU together."""
    claims: dict[HolderName, _Holder] = defaultdict(_Holder)
    pods: dict[HolderName, _Holder] = defaultdict(_Holder)
    pairs: list[tuple[HolderName, HolderName]] = []
    for sample in samples:
        claim, pod = sample.claim, sample.pod
        if claim is not None and pod is not None:
            pairs.append((claim, pod))
        if sample.metric in _OF_PODS:
            if pod is not None:
                pods[pod].values[sample.metric] = sample.value
        elif claim is not None:
            claims[claim].values[sample.metric] = sample.value
            claims[claim].enforcement = sample.labels.get(
                "memory_enforcement", claims[claim].enforcement
            )
    for of_claims, of_pods in _together(claims, pods, pairs):
        held = [claims[name] for name in of_claims]
        using = [pods[name] for name in of_pods if name in pods]
        yield replace(
            template,
            claims=of_claims,
            pods=of_pods,
            memory_used=_sum("carina_share_memory_used_bytes", using) if watched else None,
            memory_given=_sum("carina_share_memory_given_bytes", held),
            sm_used=_sum("carina_share_sm_utilization_ratio", using) if watched else None,
            sm_given=_sum("carina_share_cores_given_ratio", held),
            memory_enforcement=next((claim.enforcement for claim in held), ""),
            exceeded=any(claim.values.get("carina_share_memory_exceeded") for claim in held),
            exceeded_times=_most("carina_share_memory_exceeded_times_total", held),
            ended=_most("carina_share_processes_ended_total", held),
            idle_since=next(
                (claim.values[_IDLE] for claim in held if _IDLE in claim.values),
                None,
            ),
        )


_IDLE: Final = "carina_share_idle_since_timestamp_seconds"
_OF_PODS: Final = {
    "carina_share_memory_used_bytes",
    "carina_share_sm_utilization_ratio",
    "carina_share_processes",
    "carina_share_unmeasured_processes",
}


def _together(
    claims: Iterable[HolderName],
    pods: Iterable[HolderName],
    pairs: Iterable[tuple[HolderName, HolderName]],
) -> Iterator[tuple[tuple[HolderName, ...], tuple[HolderName, ...]]]:
    """Yields the claims and pods that pairs connect, sorted."""
    leader: dict[tuple[str, HolderName], tuple[str, HolderName]] = {}

    def find(member: tuple[str, HolderName]) -> tuple[str, HolderName]:
        leader.setdefault(member, member)
        while leader[member] != member:
            leader[member] = leader[leader[member]]
            member = leader[member]
        return member

    for claim in claims:
        find(("claim", claim))
    for pod in pods:
        find(("pod", pod))
    for claim, pod in pairs:
        leader[find(("claim", claim))] = find(("pod", pod))
    groups: dict[tuple[str, HolderName], list[tuple[str, HolderName]]] = defaultdict(list)
    for member in tuple(leader):
        groups[find(member)].append(member)
    for members in groups.values():
        yield (
            tuple(sorted(name for kind, name in members if kind == "claim")),
            tuple(sorted(name for kind, name in members if kind == "pod")),
        )


def _sum(metric: str, holders: Iterable[_Holder]) -> float:
    return sum(holder.values.get(metric, 0.0) for holder in holders)


def _most(metric: str, holders: Iterable[_Holder]) -> int:
    """The count of those who have it together."""
    return max((int(holder.values.get(metric, 0)) for holder in holders), default=0)


def _minor(sample: _Sample) -> int:
    written = sample.labels.get("gpu", "")
    if not written.isascii() or not written.isdigit() or len(written) > 9:
        raise MetricsError(f"its metrics have a GPU {written[:_LONGEST]!r}")
    return int(written)


def _row(device: DeviceUsage, now: float) -> tuple[str, ...]:
    notes = (
        *(["over"] if device.exceeded else []),
        *([f"{device.ended} ended"] if device.ended else []),
    )
    told = f" {', '.join(notes)}" if notes else ""
    return tuple(
        _cell(text)
        for text in (
            device.node,
            f"gpu-{device.gpu}",
            device.device,
            _names(device.claims),
            _names(device.pods),
            f"{_of(device.memory_used, device.memory_given, _MIB, 'MiB')}{told}",
            _of(device.sm_used, device.sm_given, _PERCENT, "%"),
            memory_in_words(device.memory_enforcement) or "-",
            "-" if device.idle_since is None else _duration(now - device.idle_since),
        )
    )


def _of(used: float | None, given: float | None, step: float, unit: str) -> str:
    """Writes how much is used of how much is given, or how much is used."""
    if used is None and given is None:
        return "-"
    found = "?" if used is None else f"{used / step:.0f}"
    return f"{found} {unit}" if given is None else f"{found}/{given / step:.0f} {unit}"


def _duration(seconds: float) -> str:
    whole = max(0, int(seconds))
    for unit, length in (("d", 86400), ("h", 3600), ("m", 60)):
        if whole >= length:
            return f"{whole // length}{unit}"
    return f"{whole}s"


def _names(names: Sequence[HolderName]) -> str:
    more = len(names) - _SHOWN
    shown = ", ".join(f"{namespace}/{name}" for namespace, name in names[:_SHOWN])
    return (shown or "-") + (f" +{more}" if more > 0 else "")


def _cell(text: str) -> str:
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _entry(device: DeviceUsage) -> Mapping[str, Any]:
    return {
        "node": device.node,
        "gpu": f"gpu-{device.gpu}",
        "uuid": device.uuid,
        "type": device.kind,
        "device": device.device,
        "claims": [{"namespace": namespace, "name": name} for namespace, name in device.claims],
        "pods": [{"namespace": namespace, "name": name} for namespace, name in device.pods],
        "memoryUsed": device.memory_used,
        "memoryGiven": device.memory_given,
        "smUsed": device.sm_used,
        "smGiven": device.sm_given,
        "memoryEnforcement": device.memory_enforcement or None,
        "exceeded": device.exceeded,
        "exceededTimes": device.exceeded_times,
        "processesEnded": device.ended,
        "idleSince": device.idle_since,
    }
