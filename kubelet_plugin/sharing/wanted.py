"""What carina-sharing is told: the shares of the recorded claims. Pure functions."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final, TypeAlias

from carina_dra.resource import ResourceClaim
from carina_dra.sharing.message import Reference, WantedShare
from kubelet_plugin.claims.claim import NodeClaim
from kubelet_plugin.devices.name import ShareName, gpu_name, parse_name
from kubelet_plugin.devices.share import ShareAmounts, share_amounts

PodsOfClaims: TypeAlias = Mapping[str, tuple[Reference, ...]]
"""The pods that claims are reserved for, by the UID of the claim, as far as they are known."""

_ALL_CORES: Final = 100
_MOST_PODS: Final = 8000
"""Of all shares of a node: with the longest names, they fit into a message. A node runs hundreds.
The pods of shares that come last in the order are left out."""


def has_shares(claim: NodeClaim) -> bool:
    """Returns whether the claim has a share of a GPU."""
    return any(_share_of(device.device) for device in claim.devices if not device.admin_access)


def shares_of(
    claims: Iterable[NodeClaim], gpus: Mapping[str, str], pods: PodsOfClaims
) -> tuple[WantedShare, ...]:
    """Returns what claims have of GPUs, sorted; several shares of a claim on a GPU are added up.

    `gpus` has the UUIDs by name, such as `gpu-3`. Shares of a GPU that is not among them are left
    out, and those without an amount, which nothing can exceed.
    """
    ordered = sorted(claims, key=lambda claim: claim.uid)
    room = _MOST_PODS
    found = []
    for claim in ordered:
        reference = Reference(namespace=claim.namespace, name=claim.name, uid=claim.uid)
        for uuid, amounts in sorted(_amounts(claim, gpus).items()):
            known = pods.get(claim.uid, ())[:room]
            room -= len(known)
            found.append(
                WantedShare(
                    claim=reference,
                    gpu=uuid,
                    memory_mib=amounts.memory_mib,
                    cores=min(amounts.cores, _ALL_CORES),
                    pods=known,
                )
            )
    return tuple(found)


def pods_of(claim: ResourceClaim) -> tuple[Reference, ...]:
    """Returns the pods that a claim is reserved for, sorted."""
    pods = (
        Reference(namespace=claim.metadata.namespace, name=user.name, uid=user.uid)
        for user in claim.status.reserved_for
        if (user.api_group, user.resource) == ("", "pods")
    )
    return tuple(sorted(pods, key=lambda pod: pod.uid))


def _amounts(claim: NodeClaim, gpus: Mapping[str, str]) -> Mapping[str, ShareAmounts]:
    """Returns what a claim has of each GPU, by UUID."""
    found: dict[str, list[ShareAmounts]] = defaultdict(list)
    for device in claim.devices:
        name = _share_of(device.device)
        uuid = None if name is None else gpus.get(gpu_name(name))
        amounts = share_amounts(device.consumed_capacity)
        if uuid is not None and amounts is not None and not device.admin_access:
            found[uuid].append(amounts)
    return {
        uuid: ShareAmounts(
            sum(amounts.memory_mib for amounts in shares),
            sum(amounts.cores for amounts in shares),
        )
        for uuid, shares in found.items()
    }


def _share_of(device: str) -> ShareName | None:
    name = parse_name(device)
    return name if isinstance(name, ShareName) else None
