"""Reads from a ResourceClaim's allocation which devices of this node the claim has."""

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from carina_dra.config.device import (
    DeviceConfig,
    DeviceConfigError,
    time_slice,
)
from carina_dra.config.in_force import (
    ConfigSource,
    ConfiguredDevice,
    configs_in_force,
)
from carina_dra.resource import (
    Allocation,
    AllocationConfigSource,
    ConsumerReference,
    DecodeError,
    DeviceResult,
    ResourceClaim,
    decode,
)
from kubelet_plugin.claims.claim import (
    AllocatedDevice,
    ClaimReference,
    NodeClaim,
    accepted_config,
)
from kubelet_plugin.claims.failure import AllocationRefused, ApiUnavailable, ClaimGone
from kubelet_plugin.devices.name import (
    MonitorName,
    PartitionName,
    ShareName,
    UnknownName,
    WholeGpuName,
    parse_name,
)
from kubelet_plugin.devices.share import share_amounts

_POD_CLAIM_NAME = "resource.kubernetes.io/pod-claim-name"
"""Annotation of a claim that kube-controller-manager makes from a template."""
_POD_CLAIM = re.compile(r"[a-z0-9]([a-z0-9-]{0,61}[a-z0-9])?")
"""What a pod can call its claim. Users can write 256 KiB of anything into the annotation, and what
they write must not fill the record of claims."""
_SHARES_NEED = (
    "switch on the feature gate DRAConsumableCapacity in kube-apiserver and kube-scheduler, and "
    "delete the pod so that it gets a share"
)
_WRITTEN_IN = {
    AllocationConfigSource.CLASS: "of the DeviceClass",
    AllocationConfigSource.CLAIM: "of the claim",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """The claim has these devices of this node allocated."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class ClaimMissing:
    """The claim has no device of this node: it was deleted, deallocated, or allocated elsewhere."""

    failure: ClaimGone


@dataclass(frozen=True, slots=True)
class ClaimRefused:
    """The claim has devices of this node allocated, but they cannot be prepared as requested."""

    failure: AllocationRefused


@dataclass(frozen=True, slots=True)
class Misconfigured:
    """The claim has devices of this node allocated, with a configuration that is refused."""

    failure: AllocationRefused
    claim: NodeClaim
    """The claim with default configurations: what it holds if another version has prepared it."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """The API server was not reached, or did not respond with the claim."""

    failure: ApiUnavailable


Reading: TypeAlias = Wanted | ClaimMissing | ClaimRefused | Misconfigured | Unknown


def read_allocation(
    body: Mapping[str, Any],
    reference: ClaimReference,
    *,
    driver: str,
    pool: str,
    share_interval_by_claim: bool = False,
) -> Reading:
    """Returns which devices of this driver and this node's pool the claim has allocated.

    `body` is the ResourceClaim from the API server; its UID must be that of `reference`.
    `share_interval_by_claim` says whether a claim may choose the time slices of shares.
    """
    try:
        claim = decode(ResourceClaim, body)
    except DecodeError as error:
        return _no_answer(reference, str(error))
    found = claim.metadata
    if (found.namespace, found.name) != (reference.namespace, reference.name) or not found.uid:
        return _no_answer(reference, f"the response is {found.key}, another object")
    if claim.metadata.uid != reference.uid:
        return _not_allocated_here(
            reference,
            f"has UID {claim.metadata.uid}, not {reference.uid}: the claim was deleted and created "
            "again",
        )
    allocation = claim.status.allocation
    if allocation is None:
        return _not_allocated_here(reference, "is not allocated")
    results = [result for result in allocation.devices.results if result.driver == driver]
    if not results:
        return _not_allocated_here(reference, f"has no device of driver {driver} allocated")
    elsewhere = [result for result in results if result.pool != pool]
    if elsewhere:
        problem = (
            f"has device {elsewhere[0].device} of pool {elsewhere[0].pool} allocated, but this "
            f"node's pool is {pool}"
        )
        if len(elsewhere) == len(results):
            return _not_allocated_here(reference, problem)
        return ClaimRefused(
            AllocationRefused(reference, f"ResourceClaim {reference.key} {problem}")
        )
    for result in results:
        lack = _lack(result)
        if lack is not None:
            problem = f"has device {result.device} allocated to request {result.request} {lack}"
            return ClaimRefused(
                AllocationRefused(reference, f"ResourceClaim {reference.key} {problem}")
            )
    configurations = _configurations(reference, allocation, driver)
    reading = _configured(
        reference, results, configurations, share_interval_by_claim=share_interval_by_claim
    )
    names = [result.request.partition("/") for result in results]
    subrequests = {request: subrequest for request, _, subrequest in names if subrequest}
    named_in_pod = found.annotations.get(_POD_CLAIM_NAME, "")
    pod_claim = named_in_pod if _POD_CLAIM.fullmatch(named_in_pod) else None
    named = replace(
        reading.claim,
        pod_claim=pod_claim,
        subrequests=subrequests,
        pods=_pods(claim.status.reserved_for),
    )
    return replace(reading, claim=named)


def _pods(consumers: Collection[ConsumerReference]) -> tuple[str, ...]:
    """Returns the UIDs of the pods that may use a claim; none if others than pods may, too."""
    if any((consumer.api_group, consumer.resource) != ("", "pods") for consumer in consumers):
        return ()
    return tuple(sorted(consumer.uid for consumer in consumers))


def _no_answer(claim: ClaimReference, what: str) -> Unknown:
    problem = f"{what}; check that no proxy responds in its place"
    return Unknown(ApiUnavailable(claim, problem, retriable=True))


def _not_allocated_here(claim: ClaimReference, what: str) -> ClaimMissing:
    return ClaimMissing(ClaimGone(claim, f"ResourceClaim {claim.key} {what}"))


def _configured(
    claim: ClaimReference,
    results: Sequence[DeviceResult],
    sources: Sequence[ConfigSource],
    *,
    share_interval_by_claim: bool,
) -> Wanted | Misconfigured:
    accepted = [accepted_config(result.device) for result in results]
    devices = [
        ConfiguredDevice(result.request, result.device, accepts)
        for result, accepts in zip(results, accepted, strict=True)
    ]
    try:
        configs = configs_in_force(
            devices, sources, share_interval_by_claim=share_interval_by_claim
        )
    except DeviceConfigError as error:
        defaults = [accepts() for accepts in accepted]
        failure = AllocationRefused(claim, str(error))
        return Misconfigured(failure, _node_claim(claim, results, defaults))
    for result, config in zip(results, configs, strict=True):
        if result.admin_access and time_slice(config) is not None:
            failure = AllocationRefused(
                claim,
                f"ResourceClaim {claim.key} has a {config.kind} with time slicing for request "
                f"{result.request}, which has admin access; admin access changes nothing on a GPU: "
                "remove it from the configuration, or name the other requests in it",
            )
            defaults = [accepts() for accepts in accepted]
            return Misconfigured(failure, _node_claim(claim, results, defaults))
    return Wanted(_node_claim(claim, results, configs))


def _node_claim(
    claim: ClaimReference, results: Sequence[DeviceResult], configs: Sequence[DeviceConfig]
) -> NodeClaim:
    devices = tuple(
        AllocatedDevice(
            request=result.request.partition("/")[0],
            pool=result.pool,
            device=result.device,
            config=config,
            admin_access=bool(result.admin_access),
            share_id=result.share_id,
            consumed_capacity=result.consumed_capacity,
        )
        for result, config in zip(results, configs, strict=True)
    )
    return NodeClaim(claim.uid, claim.namespace, claim.name, devices)


def _lack(result: DeviceResult) -> str | None:
    """Returns what the result lacks to be prepared, and the remedy; None if it lacks nothing."""
    match parse_name(result.device):
        case PartitionName() if result.admin_access:
            return (
                "with admin access, which partitions cannot have, because they exist only while "
                "other claims have them; select devices of type monitor, which see all partitions"
            )
        case _ if result.admin_access:
            return None
        case MonitorName():
            return (
                "without admin access, for which alone it is; write adminAccess: true in the "
                'request, in a namespace with the label resource.kubernetes.io/admin-access: "true"'
                ", or select devices of another type"
            )
        case ShareName() if result.share_id is None:
            return f"as a whole, without shareID; {_SHARES_NEED}"
        case ShareName() if share_amounts(result.consumed_capacity) is None:
            return f"without amounts of memory and cores in consumedCapacity; {_SHARES_NEED}"
        case WholeGpuName() | PartitionName() | ShareName() | UnknownName():
            return None


def _configurations(
    claim: ClaimReference, allocation: Allocation, driver: str
) -> tuple[ConfigSource, ...]:
    return tuple(
        ConfigSource(
            location=f"ResourceClaim {claim.key}, status.allocation.devices.config[{index}] "
            f"({_WRITTEN_IN[config.source]})",
            from_class=config.source is AllocationConfigSource.CLASS,
            requests=frozenset(config.requests),
            parameters=config.opaque.parameters,
        )
        for index, config in enumerate(allocation.devices.config)
        if config.opaque is not None and config.opaque.driver == driver
    )
