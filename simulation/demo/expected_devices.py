"""The devices that the containers of a pod should see, to compare with what they do see."""

from collections.abc import Iterable

from carina_dra.kube.body import Body
from kubelet_plugin.devices.name import PartitionName, gpu_name, parse_name


def claim_names(pod: Body) -> list[str]:
    """The claims of a pod: by name, from templates, and for the extended resources it requests."""
    status = pod.get("status", {})
    named = [
        entry["resourceClaimName"]
        for entry in pod["spec"].get("resourceClaims", ())
        if "resourceClaimName" in entry
    ]
    generated = [entry["resourceClaimName"] for entry in status.get("resourceClaimStatuses", ())]
    extended = status.get("extendedResourceClaimStatus")
    return [*named, *generated, *([extended["resourceClaimName"]] if extended else ())]


def allocated(claims: Iterable[Body]) -> list[tuple[str, str]]:
    """The allocated devices as pairs of request and device."""
    return [
        (result["request"].partition("/")[0], result["device"])
        for claim in claims
        for result in claim["status"]["allocation"]["devices"]["results"]
    ]


def devices_of(container: Body, given: Iterable[tuple[str, str]]) -> list[str]:
    """The devices that a container should see: those of the requests it names, by default all."""
    claims = container.get("resources", {}).get("claims", ())
    named = {entry["request"] for entry in claims if "request" in entry}
    return sorted(device for request, device in given if not named or request in named)


def gpus_of(devices: Iterable[str]) -> list[str]:
    """The GPUs, as `gpu-<minor>`, that devices belong to."""
    return sorted({gpu_name(parse_name(device)) for device in devices})


def partitions_among(devices: Iterable[str]) -> list[str]:
    """The devices that are MIG partitions, each of which has a UUID once it is made."""
    return [device for device in devices if isinstance(parse_name(device), PartitionName)]


def gpus_behind(paths: Iterable[str]) -> list[str]:
    """The GPUs whose device nodes are among the paths: gpu-0 for /dev/nvidia0."""
    numbers = (path.removeprefix("/dev/nvidia") for path in paths)
    return sorted(f"gpu-{number}" for number in numbers if number.isdecimal())
