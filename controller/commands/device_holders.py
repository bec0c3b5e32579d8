"""Which pods hold devices of a driver on a node, from claims and pods. No I/O."""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from carina_dra.kube.body import Body
from controller.engine.model.queue import QUEUE_LABEL


@dataclass(frozen=True, slots=True)
class DeviceHolder:
    """A pod that may use a claim with devices on the node."""

    pod: str
    """`namespace/name`."""
    queue: str | None
    """The queue of a pod; None if it has none."""


def device_holders(
    claims: Iterable[Body], pods: Iterable[Body], *, driver: str, node: str
) -> tuple[DeviceHolder, ...]:
    """Returns who holds devices of the driver on the node, sorted.

    `pods` are those of the node. A claim with devices that no pod uses does not hold the node: the
    kubelet has unprepared it.
    """
    by_uid = {pod["metadata"]["uid"]: pod for pod in pods}
    found = {
        _holder(claim, consumer, by_uid)
        for claim in claims
        if _is_here(claim, driver, node)
        for consumer in claim["status"].get("reservedFor") or ()
        if consumer.get("resource") == "pods"
    }
    return tuple(sorted(found, key=lambda holder: holder.pod))


def _holder(claim: Body, consumer: Body, pods: Mapping[str, Body]) -> DeviceHolder:
    namespace = claim["metadata"]["namespace"]
    pod = pods.get(consumer.get("uid", ""))
    labels = {} if pod is None else pod["metadata"].get("labels") or {}
    return DeviceHolder(f"{namespace}/{consumer['name']}", labels.get(QUEUE_LABEL))


def _is_here(claim: Body, driver: str, node: str) -> bool:
    return any((result["driver"], result["pool"]) == (driver, node) for result in _results(claim))


def _results(claim: Body) -> Iterator[Body]:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    yield from (allocation.get("devices") or {}).get("results") or ()
