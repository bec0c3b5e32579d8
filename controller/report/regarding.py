"""Objects as Events name them."""

from collections.abc import Callable, Iterable

from carina_dra.kube.event import ObjectReference
from carina_dra.resource import ResourceClaim
from controller.observe.mirror import Mirror
from controller.observe.pod import ObservedPod


def pod_reference(pod: ObservedPod) -> ObjectReference:
    """A pod."""
    return ObjectReference("v1", "Pod", pod.name, pod.namespace, pod.uid)


def claim_reference(claim: ResourceClaim) -> ObjectReference:
    """A ResourceClaim."""
    metadata = claim.metadata
    name, namespace, uid = metadata.name, metadata.namespace, metadata.uid
    return ObjectReference(claim.API_VERSION, claim.KIND, name, namespace, uid)


def pod_named(mirror: Mirror) -> Callable[[str], Iterable[ObjectReference]]:
    """Gives a pod, or the claim that it stands for, as Events name it; nothing if it is gone."""

    def named(key: str) -> Iterable[ObjectReference]:
        claim = mirror.standalone_of(key)
        if claim is not None:
            return [claim_reference(claim)]
        return [pod_reference(mirror.pods[key])] if key in mirror.pods else ()

    return named


def references(mirror: Mirror) -> Callable[[str], Iterable[ObjectReference]]:
    """Gives the pods of a group that have no place, or its claim, as Events name them."""

    def pods_of(group: str) -> Iterable[ObjectReference]:
        claim = mirror.standalone_of(group)
        if claim is not None:
            return [claim_reference(claim)]
        return (pod_reference(pod) for pod in mirror.roster.members(group) if pod.is_waiting)

    return pods_of
