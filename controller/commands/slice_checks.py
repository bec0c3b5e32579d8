"""What `carina doctor` sees in the ResourceSlices of a cluster, and tries with one.

A slice is only tried (`dryRun`), to see which fields the API server keeps.
"""

import time
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from carina_dra.cli.diagnosis import Diagnosis, bad, ok, warn
from carina_dra.kube.api_resource import NODES, RESOURCE_SLICES
from carina_dra.kube.body import Body
from carina_dra.kube.errors import Invalid
from controller.commands.installation import Installation, ago, seconds

_GATES: Final[Mapping[str, tuple[Mapping[str, Any], str]]] = {
    "DRAPartitionableDevices": (
        {"sharedCounters": [{"name": "doctor", "counters": {"doctor": {"value": "1"}}}]},
        "each GPU is one device, without partitions and shares beside it",
    ),
    "DRAConsumableCapacity": (
        {"devices": [{"name": "doctor", "allowMultipleAllocations": True}]},
        "GPUs cannot be shared",
    ),
    "DRADeviceTaints": (
        {"devices": [{"name": "doctor", "taints": [{"key": "doctor", "effect": "NoSchedule"}]}]},
        "a GPU with a problem is not published, instead of tainted",
    ),
}
"""Fields of a ResourceSlice that the API server drops while the feature gate is off."""
_GPU_LABELS: Final = (
    "nvidia.com/gpu.present",
    "feature.node.kubernetes.io/pci-10de.present",
    "feature.node.kubernetes.io/pci-0302_10de.present",
    "feature.node.kubernetes.io/pci-0300_10de.present",
)
"""Labels of nodes with NVIDIA's GPUs: of the GPU Operator and of Node Feature Discovery."""
_IDENTITIES: Final = ("resource.kubernetes.io/pciBusID", "pciBusID", "uuid", "parentUUID")
_SHOWN: Final = 5


def feature_gates(cluster: Installation) -> Iterator[Diagnosis]:
    on = []
    for gate, (fields, consequence) in _GATES.items():
        body = {
            "apiVersion": RESOURCE_SLICES.api_version,
            "kind": RESOURCE_SLICES.kind,
            "metadata": {"name": f"carina-doctor-{gate.lower()}"},
            "spec": {
                "driver": "doctor.carina.dev",
                "nodeName": "carina-doctor",
                "pool": {"name": "carina-doctor", "generation": 1, "resourceSliceCount": 1},
                **fields,
            },
        }
        try:
            stored = cluster.client.try_create(RESOURCE_SLICES, body, timeout=cluster.patience)
        except Invalid as error:
            yield warn(f"{gate} cannot be told: {error}", f"see that {gate} is on")
            continue
        if _keeps(stored["spec"], fields):
            on.append(gate)
        else:
            remedy = f"switch {gate} on in kube-apiserver, kube-scheduler and kubelets"
            yield warn(f"{gate} is off: {consequence}", remedy)
    if on:
        yield ok(f"on: {', '.join(on)}")


def _keeps(stored: Mapping[str, Any], fields: Mapping[str, Any]) -> bool:
    """Returns whether all fields that were sent are in what is stored."""
    for name, value in fields.items():
        kept = stored.get(name)
        if not kept:
            return False
        if isinstance(value, list) and isinstance(value[0], dict) and not _keeps(kept[0], value[0]):
            return False
    return True


def slices(cluster: Installation) -> Iterator[Diagnosis]:
    nodes = cluster.client.list(NODES, timeout=cluster.patience).items
    by_node: dict[str, list[Body]] = defaultdict(list)
    for body in cluster.client.list(RESOURCE_SLICES, timeout=cluster.patience).items:
        if body["spec"]["driver"] == cluster.driver:
            by_node[body["spec"].get("nodeName", "")].append(body)
    silent = sorted(
        node["metadata"]["name"]
        for node in nodes
        if _has_gpus(node) and node["metadata"]["name"] not in by_node
    )
    if silent:
        remedy = "see the log of its plugin's pod, and `carina doctor node` there"
        yield bad(f"nodes with GPUs and without slices: {_some(silent)}", remedy)
    partial_pools = sorted(
        node
        for node, slices in by_node.items()
        if any(body["spec"]["pool"]["resourceSliceCount"] != len(slices) for body in slices)
    )
    if partial_pools:
        remedy = "wait a minute; if it stays, see the plugin's log"
        yield warn(f"pools without all of their slices: {_some(partial_pools)}", remedy)
    if by_node:
        published = [_written(body) for slices in by_node.values() for body in slices]
        last = ago(time.time() - max(published))
        devices = sum(
            len(body["spec"].get("devices") or ()) for slices in by_node.values() for body in slices
        )
        yield ok(f"{devices} devices of {len(by_node)} nodes; last published {last}")
    elif not silent:
        yield warn(f"no node publishes devices of {cluster.driver}", "see that nodes have GPUs")


def _has_gpus(node: Body) -> bool:
    labels = node["metadata"].get("labels") or {}
    return any(labels.get(label) == "true" for label in _GPU_LABELS)


def _written(body: Body) -> float:
    """When the object was last written, in seconds of the epoch."""
    metadata = body["metadata"]
    times = [entry["time"] for entry in metadata.get("managedFields") or () if entry.get("time")]
    return max(map(seconds, (*times, metadata["creationTimestamp"])))


def other_drivers(cluster: Installation) -> Iterator[Diagnosis]:
    ours: set[tuple[str, str]] = set()
    theirs: dict[str, set[tuple[str, str]]] = defaultdict(set)
    for body in cluster.client.list(RESOURCE_SLICES, timeout=cluster.patience).items:
        spec = body["spec"]
        found = set(_gpus(spec))
        if spec["driver"] == cluster.driver:
            ours |= found
        else:
            theirs[spec["driver"]] |= found
    remedy = "remove it from these nodes (docs/other-drivers.md)"
    clear = True
    for driver, gpus in sorted(theirs.items()):
        if shared := sorted({node for node, _ in gpus & ours}):
            clear = False
            yield bad(f"DRA driver {driver} publishes the same GPUs on {_some(shared)}", remedy)
    plugins = sorted(
        node["metadata"]["name"]
        for node in cluster.client.list(NODES, timeout=cluster.patience).items
        if _number((node.get("status") or {}).get("allocatable") or {})
    )
    if plugins:
        clear = False
        text = f"a device plugin offers nvidia.com/gpu on {_some(plugins)}"
        yield warn(f"{text}, where Carina withholds the GPUs", remedy)
    if clear:
        yield ok("none offers the same GPUs")


def _number(allocatable: Mapping[str, str]) -> bool:
    return allocatable.get("nvidia.com/gpu", "0") != "0"


def _gpus(spec: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """The GPUs that a slice names, by node and identity."""
    for device in spec.get("devices") or ():
        for name, value in (device.get("attributes") or {}).items():
            if name in _IDENTITIES or name.rpartition("/")[2] in _IDENTITIES:
                yield spec.get("nodeName", ""), str(value.get("string", "")).lower()


def _some(names: Sequence[str]) -> str:
    more = len(names) - _SHOWN
    return ", ".join(names[:_SHOWN]) + (f" and {more} more" if more > 0 else "")
