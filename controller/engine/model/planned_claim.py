"""How claims are named that do not exist yet: kube-scheduler makes them for extended resources."""

from typing import Final

from carina_dra.resource import ResourceClaim

_BETWEEN: Final = "/extended-resource/"


def planned_name(pod: str, resource: str) -> str:
    """The name of what a pod of this name is planned to get; no claim that exists can have it."""
    return f"{pod}{_BETWEEN}{resource}"


def is_planned(claim: ResourceClaim) -> bool:
    """Whether a claim does not exist yet, so that kube-scheduler has yet to choose its devices."""
    return _BETWEEN in claim.metadata.name
