"""What the containers of a pod are to see: the measure for what they do see."""

from collections.abc import Iterable

from carina_dra.kube.body import Body


def claim_names(pod: Body) -> list[str]:
    """The claims of a pod: its own, those made from templates, and the one for its `limits`."""
    status = pod.get("status", {})
    named = [
        each["resourceClaimName"]
        for each in pod["spec"].get("resourceClaims", ())
        if "resourceClaimName" in each
    ]
    generated = [each["resourceClaimName"] for each in status.get("resourceClaimStatuses", ())]
    extended = status.get("extendedResourceClaimStatus")
    return [*named, *generated, *([extended["resourceClaimName"]] if extended else ())]


def allocated(claims: Iterable[Body]) -> list[tuple[str, str]]:
    """The devices that claims were given, each after the request that it is for."""
    return [
        (each["request"].partition("/")[0], each["device"])
        for claim in claims
        for each in claim["status"]["allocation"]["devices"]["results"]
    ]


def devices_of(container: Body, given: Iterable[tuple[str, str]]) -> list[str]:
    """The devices that a container is to see: of the requests that it names, or of all."""
    claims = container.get("resources", {}).get("claims", ())
    named = {each["request"] for each in claims if "request" in each}
    return sorted(device for request, device in given if not named or request in named)


def devices_behind(paths: Iterable[str]) -> list[str]:
    """The devices whose nodes are among the paths: gpu-0 for /dev/nvidia0."""
    numbers = (path.removeprefix("/dev/nvidia") for path in paths)
    return sorted(f"gpu-{number}" for number in numbers if number.isdecimal())
