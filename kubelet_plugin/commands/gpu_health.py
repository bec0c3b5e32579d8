"""The health of a cluster's GPUs, as slices, claims and Nodes say it. No I/O."""

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Final

from carina_dra.resource import (
    Device,
    DeviceTaint,
    ResourceClaim,
    ResourceSlice,
    StringAttribute,
    TaintEffect,
)
from carina_dra.resource.attribute import lookup
from carina_dra.text_table import columns
from kubelet_plugin.devices.name import MonitorName, gpu_name, parse_name
from kubelet_plugin.node.view import NodeView

_SEVERITY: Final = (TaintEffect.NONE, TaintEffect.NO_SCHEDULE, TaintEffect.NO_EXECUTE)
_XID: Final = re.compile(r"xid-(\d+)")


@dataclass(frozen=True, slots=True)
class TaintedState:
    """A problem of a GPU, as the taints of its devices say."""

    state: str
    """The word after the driver's name in the key of the taint."""
    reason: str
    effect: TaintEffect
    """The strongest of its devices."""
    since: datetime | None
    devices: tuple[str, ...]

    @property
    def xids(self) -> tuple[int, ...]:
        """The XIDs that the reason names."""
        return tuple(map(int, _XID.findall(self.reason)))


@dataclass(frozen=True, slots=True)
class ClaimOnGpu:
    """A claim that has devices of a GPU, and the pods that use it."""

    claim: str
    """`namespace/name`."""
    devices: tuple[str, ...]
    pods: tuple[str, ...]
    """Names, in the namespace of the claim."""


@dataclass(frozen=True, slots=True)
class GpuHealth:
    """A GPU of the cluster."""

    node: str
    gpu: str
    """`gpu-<minor>`."""
    uuid: str | None
    product: str | None
    problems: tuple[TaintedState, ...] = ()
    """Those with the strongest effect first."""
    claims: tuple[ClaimOnGpu, ...] = ()
    cleared: datetime | None = None
    """Faults first seen before that time do not count, as an administrator said."""


def gpus_of(slices: Iterable[ResourceSlice], driver: str) -> tuple[GpuHealth, ...]:
    """Returns the GPUs that a driver's slices have devices of, sorted by node and minor number."""
    found: dict[tuple[str, int, str], list[Device]] = defaultdict(list)
    for slice_ in slices:
        if slice_.spec.driver != driver:
            continue
        for device in slice_.spec.devices:
            gpu = gpu_name(parse_name(device.name))
            _, _, minor = gpu.rpartition("-")
            found[slice_.spec.pool.name, int(minor) if minor.isdecimal() else 0, gpu].append(device)
    return tuple(
        GpuHealth(
            node,
            gpu,
            _first(
                _text(device, "parentUUID", driver) or _text(device, "uuid", driver)
                for device in of_gpu
            ),
            _first(_text(device, "productName", driver) for device in of_gpu),
            _problems(of_gpu, driver),
        )
        for (node, _, gpu), of_gpu in sorted(found.items())
    )


def with_claims(
    gpus: Iterable[GpuHealth], claims: Iterable[ResourceClaim], driver: str
) -> tuple[GpuHealth, ...]:
    """Returns the GPUs with the claims that have devices of them."""
    on_gpu: dict[tuple[str, str], list[ClaimOnGpu]] = defaultdict(list)
    for claim in claims:
        allocation = claim.status.allocation
        devices: dict[tuple[str, str], list[str]] = defaultdict(list)
        for result in () if allocation is None else allocation.devices.results:
            if result.driver == driver:
                gpu = gpu_name(parse_name(result.device))
                devices[result.pool, gpu].append(result.device)
        pods = tuple(
            user.name
            for user in claim.status.reserved_for
            if (user.api_group, user.resource) == ("", "pods")
        )
        for key, names in devices.items():
            on_gpu[key].append(ClaimOnGpu(claim.key, tuple(dict.fromkeys(names)), pods))
    return tuple(
        replace(gpu, claims=tuple(sorted(on_gpu[gpu.node, gpu.gpu], key=lambda use: use.claim)))
        for gpu in gpus
    )


def with_nodes(gpus: Iterable[GpuHealth], views: Mapping[str, NodeView]) -> tuple[GpuHealth, ...]:
    """Returns the GPUs with the times at which their faults were cleared."""
    return tuple(
        replace(gpu, cleared=views[gpu.node].faults_cleared.get(gpu.uuid or ""))
        if gpu.node in views
        else gpu
        for gpu in gpus
    )


def next_steps(gpu: GpuHealth, problem: TaintedState) -> tuple[str, ...]:
    """Returns commands that help with a problem; what is not a command begins with `#`."""
    node, uuid = gpu.node, gpu.uuid or gpu.gpu
    drain = f"kubectl drain {node} --ignore-daemonsets --delete-emptydir-data"
    clear = f"carina health --clear {node} {uuid}"
    match problem.state:
        case "lost" | "needs-reboot":
            return drain, f"# reboot {node}", f"kubectl uncordon {node}"
        case "needs-reset" | "drain":
            return (
                f"carina node release {node}",
                _on(node, f"nvidia-smi --gpu-reset -i {uuid}"),
                f"carina node restore {node}",
            )
        case "unreadable":
            return (_on(node, f"nvidia-smi -q -i {uuid}"),)
        case "memory-failed":
            return drain, f"# replace {gpu.gpu} of {node}", clear
        case "fabric":
            return (_on(node, "systemctl status nvidia-fabricmanager"),)
        case "degraded":
            return (_on(node, f"nvidia-smi -q -d PERFORMANCE,TEMPERATURE,POWER -i {uuid}"),)
        case "released":
            return (f"carina node restore {node}",)
        case "compute-mode":
            return (_on(node, f"nvidia-smi -c DEFAULT -i {uuid}"),)
        case "repair-failed":
            return ("kubectl get events -A --field-selector reason=RepairFailed",)
        case _:
            events = f"involvedObject.kind=Node,involvedObject.name={node}"
            return (f"kubectl get events --field-selector {events}",)


def lines(gpus: Iterable[GpuHealth], *, every: bool, now: datetime) -> Iterator[str]:
    """The GPUs with problems for people, or every GPU, and below it the next steps."""
    known = tuple(gpus)
    if not known:
        yield "there are no GPUs"
        return
    ill = tuple(gpu for gpu in known if gpu.problems)
    shown = known if every else ill
    if shown:
        yield from columns(
            ("NODE", "GPU", "STATE", "SINCE", "REASON", "XIDS", "EFFECT", "CLAIMS", "PODS"),
            (row for gpu in shown for row in _rows(gpu, now)),
        )
    for gpu in ill:
        for problem in gpu.problems:
            yield ""
            yield f"{gpu.node} {gpu.gpu} {problem.state}{_cleared(gpu, problem)}:"
            yield from (f"  {step}" for step in next_steps(gpu, problem))
    if not ill:
        yield f"no GPU of {len(known)} has a problem"


def document(gpus: Iterable[GpuHealth]) -> dict[str, Any]:
    """All GPUs for programs."""
    return {"gpus": [_document(gpu) for gpu in gpus]}


def _rows(gpu: GpuHealth, now: datetime) -> Iterator[tuple[str, ...]]:
    claims = _few(use.claim for use in gpu.claims)
    pods = _few(pod for use in gpu.claims for pod in use.pods)
    if not gpu.problems:
        yield gpu.node, gpu.gpu, "ready", "-", "-", "-", "-", claims, pods
    for problem in gpu.problems:
        yield (
            gpu.node,
            gpu.gpu,
            problem.state,
            _ago(problem.since, now),
            problem.reason or "-",
            ",".join(map(str, problem.xids)) or "-",
            str(problem.effect),
            claims,
            pods,
        )


def _problems(devices: Iterable[Device], driver: str) -> tuple[TaintedState, ...]:
    found: dict[str, list[tuple[Device, DeviceTaint]]] = defaultdict(list)
    for device in devices:
        for taint in device.taints:
            domain, _, state = taint.key.partition("/")
            if domain == driver and state:
                found[state].append((device, taint))
    problems = [_problem(state, tainted) for state, tainted in sorted(found.items())]
    return tuple(
        sorted(problems, key=lambda problem: _SEVERITY.index(problem.effect), reverse=True)
    )


def _problem(state: str, tainted: Iterable[tuple[Device, DeviceTaint]]) -> TaintedState:
    pairs = tuple(tainted)
    effects = [
        taint.effect if isinstance(taint.effect, TaintEffect) else TaintEffect.NONE
        for _, taint in pairs
    ]
    times = [taint.time_added for _, taint in pairs if taint.time_added is not None]
    return TaintedState(
        state,
        _first(taint.value for _, taint in pairs) or "",
        max(effects, key=_SEVERITY.index),
        min(times, default=None),
        tuple(
            device.name
            for device, _ in pairs
            if len(pairs) == 1 or not isinstance(parse_name(device.name), MonitorName)
        ),
    )


def _document(gpu: GpuHealth) -> dict[str, Any]:
    return {
        "node": gpu.node,
        "gpu": gpu.gpu,
        "uuid": gpu.uuid,
        "productName": gpu.product,
        "clearedAt": _time(gpu.cleared),
        "problems": [
            {
                "state": problem.state,
                "reason": problem.reason,
                "xids": list(problem.xids),
                "effect": str(problem.effect),
                "since": _time(problem.since),
                "devices": list(problem.devices),
                "nextSteps": list(next_steps(gpu, problem)),
            }
            for problem in gpu.problems
        ],
        "claims": [
            {"claim": use.claim, "devices": list(use.devices), "pods": list(use.pods)}
            for use in gpu.claims
        ],
    }


def _on(node: str, command: str) -> str:
    return (
        f"kubectl debug node/{node} -it --profile=sysadmin --image=busybox -- chroot /host "
        f"{command}"
    )


def _cleared(gpu: GpuHealth, problem: TaintedState) -> str:
    if gpu.cleared is None or problem.since is None or gpu.cleared < problem.since:
        return ""
    return f" (cleared at {_time(gpu.cleared)}, and it persists)"


def _ago(since: datetime | None, now: datetime) -> str:
    """As kubectl writes ages, in one unit."""
    if since is None:
        return "-"
    seconds = max(0, int((now - since).total_seconds()))
    for length, unit in ((86_400, "d"), (3600, "h"), (60, "m")):
        if seconds >= 2 * length:
            return f"{seconds // length}{unit}"
    return f"{seconds}s"


def _few(names: Iterable[str], most: int = 3) -> str:
    unique = tuple(dict.fromkeys(names))
    more = f" and {len(unique) - most} more" if len(unique) > most else ""
    return ",".join(unique[:most]) + more or "-"


def _first(values: Iterable[str | None]) -> str | None:
    return next((value for value in values if value), None)


def _text(device: Device, name: str, driver: str) -> str | None:
    found = lookup(device.attributes, f"{driver}/{name}", driver)
    return found.value if isinstance(found, StringAttribute) else None


def _time(at: datetime | None) -> str | None:
    return None if at is None else at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
