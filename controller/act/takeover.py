"""What the last leader may still be writing, if it did not release its Lease.

It may have been paused between the question whether it leads and the write itself, and an API
server may be slow to carry a write out. The version that such a write names protects only the
object itself: a claim that has not changed since could still get devices that now belong to
another. So each of these objects gets another version before anything is decided.

Pods are ungated only once all of their claims have devices. Evictions are not fenced: one that is
carried out late does no more harm than if it had been carried out in time.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import ObjectKey
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod


@dataclass(frozen=True, slots=True)
class Unsettled:
    """An object that may still be written."""

    resource: ApiResource
    key: ObjectKey
    uid: str


def unsettled(mirror: Mirror) -> Iterator[Unsettled]:
    """The claims that a controller may write, and the pods whose gate it may remove."""
    for claim in mirror.claims.values():
        users = list(mirror.users_of(claim.key))
        alone = mirror.standalone.get(claim.key)
        asks = alone is not None and alone.is_charged
        is_left = not users and claim.status.allocation is None
        if asks or is_left or any(map(_may_start, users)):
            metadata = claim.metadata
            key = ObjectKey(metadata.namespace, metadata.name)
            yield Unsettled(RESOURCE_CLAIMS, key, metadata.uid)
    for pod in mirror.pods.values():
        if _may_start(pod) and pod.is_held and all(_has_devices(mirror, pod)):
            yield Unsettled(PODS, ObjectKey(pod.namespace, pod.name), pod.uid)


def _may_start(pod: ObservedPod) -> bool:
    return pod.queue is not None and pod.is_waiting


def _has_devices(mirror: Mirror, pod: ObservedPod) -> Iterator[bool]:
    for key in pod.claims:
        claim = mirror.claims.get(key)
        yield claim is not None and claim.status.allocation is not None
