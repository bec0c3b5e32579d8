"""What a pod asks for by the names of extended resources, and the claim that this becomes.

Where no device plugin offers such a resource, kube-scheduler makes a claim for it, of the
DeviceClass that is mapped to the name (KEP-5004). The requests of that claim are computed here as
in `extendeddynamicresources.go` of kube-scheduler 1.37.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple, TypeAlias

from carina_dra.quantity import Quantity
from carina_dra.resource import (
    DeviceClaim,
    DeviceRequest,
    ExactCount,
    ExactDeviceRequest,
    Exactly,
    JsonObject,
    ResourceClaimSpec,
)
from controller.engine.model.extended_resource import IMPLICIT

_NATIVE: Final = "kubernetes.io/"
_QUOTA: Final = "requests."
_TEMPLATES: Final = 4096
"""The most templates whose requests are shared, those read last."""
_MOST: Final = 64
"""The most requests of a pod that count. A claim has 32 at most, so more of them never start."""


class ExtendedRequest(NamedTuple):
    """An extended resource that a container requests."""

    resource: str
    container: int
    """The index of the container, init containers first."""
    position: int
    """Its place among the names of all resources that the container requests."""
    amount: int
    ends_early: bool
    """Whether it is an init container that ends before others start."""


ExtendedRequests: TypeAlias = tuple[ExtendedRequest, ...]


def extended_requests(spec: JsonObject) -> ExtendedRequests:
    """The extended resources that a pod requests, at most `_MOST`; equal ones are one value.

    Raises:
        ValueError: a quantity cannot be read.
    """
    return _shared(tuple(_requests(spec)))


@lru_cache(_TEMPLATES)
def _shared(requests: ExtendedRequests) -> ExtendedRequests:
    return requests


def _requests(spec: JsonObject) -> Iterator[ExtendedRequest]:
    init: Any = spec.get("initContainers") or ()
    found = 0
    for index, container in enumerate((*init, *(spec.get("containers") or ()))):
        requests = (container.get("resources") or {}).get("requests") or {}
        names = [name for name in requests if _is_extended(name)]
        if not names:
            continue
        order = sorted(requests)
        ends_early = index < len(init) and container.get("restartPolicy") != "Always"
        for name in sorted(names):
            amount = Quantity.parse(str(requests[name])).value()
            if amount and found < _MOST:
                found += 1
                yield ExtendedRequest(name, index, order.index(name), amount, ends_early)


def _is_extended(name: str) -> bool:
    """Whether kube-scheduler may serve a resource by a claim."""
    if name.startswith(IMPLICIT):
        return True
    return "/" in name and _NATIVE not in name and not name.startswith(_QUOTA)


@lru_cache(_TEMPLATES)
def claim_spec(requests: ExtendedRequests, resource: str, class_name: str) -> ResourceClaimSpec:
    """The claim for one of the resources, with the requests that kube-scheduler gives it.

    Each container has a request of its own. An init container that ends early uses the devices of
    containers after it first, and those of all such containers are one request.
    """
    asked = [request for request in requests if request.resource == resource]
    lasting = [request for request in asked if not request.ends_early]
    counts = {_name(request): request.amount for request in lasting}
    most: tuple[int, str] | None = None
    for request in asked:
        if request.ends_early:
            used = sum(after.amount for after in lasting if after.container > request.container)
            count = request.amount - used
            if count > 0 and (most is None or count > most[0]):
                most = count, _name(request)
    if most is not None:
        counts[most[1]] = most[0]
    return ResourceClaimSpec(
        DeviceClaim(
            tuple(
                DeviceRequest(
                    name, Exactly(ExactDeviceRequest(class_name, mode=ExactCount(counts[name])))
                )
                for name in sorted(counts)
            )
        )
    )


def _name(request: ExtendedRequest) -> str:
    return f"container-{request.container}-request-{request.position}"
