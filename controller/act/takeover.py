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
from itertools import zip_longest

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import ObjectKey
from controller.engine.model.queue import QUEUE_LABEL
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod


@dataclass(frozen=True, slots=True)
class Unsettled:
    """An object that may still be written."""

    resource: ApiResource
    key: ObjectKey
    uid: str


def unsettled(mirror: Mirror) -> list[Unsettled]:
    """The claims that a controller may write, and the pods whose gate it may remove.

    Namespaces take turns: one has as many claims as its users like, and the time is bounded.
    """
    by_namespace: dict[str, list[Unsettled]] = {}
    for each in (*_pods(mirror), *_claims(mirror)):
        by_namespace.setdefault(each.key.namespace, []).append(each)
    turns = zip_longest(*by_namespace.values())
    return [each for turn in turns for each in turn if each is not None]


def _claims(mirror: Mirror) -> Iterator[Unsettled]:
    for claim in mirror.claims.values():
        alone = mirror.standalone.get(claim.key)
        asks = alone is not None and alone.is_charged
        # A pod's claim outlives the pod for a moment.
        is_left = claim.status.allocation is None and QUEUE_LABEL in claim.metadata.labels
        if asks or is_left or any(map(_may_start, mirror.users_of(claim.key))):
            metadata = claim.metadata
            key = ObjectKey(metadata.namespace, metadata.name)
            yield Unsettled(RESOURCE_CLAIMS, key, metadata.uid)


def _pods(mirror: Mirror) -> Iterator[Unsettled]:
    for pod in mirror.pods.values():
        if _may_start(pod) and pod.is_held and all(_has_devices(mirror, pod)):
            yield Unsettled(PODS, ObjectKey(pod.namespace, pod.name), pod.uid)


def _may_start(pod: ObservedPod) -> bool:
    return pod.queue is not None and pod.is_waiting


def _has_devices(mirror: Mirror, pod: ObservedPod) -> Iterator[bool]:
    for key in pod.claims:
        claim = mirror.claims.get(key)
        yield claim is not None and claim.status.allocation is not None
