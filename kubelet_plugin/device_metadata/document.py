"""The metadata of the devices of a request, as containers read it (KEP-5304).

A file has the same object once in each version of `metadata.resource.k8s.io`, the newest first;
consumers skip versions that they do not know. Paths in containers and content are those of
k8s.io/dynamic-resource-allocation v0.37.0 (`api/metadata`, `kubeletplugin/metadata.go`), byte by
byte.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, assert_never

from carina_dra.resource import (
    Device,
    DeviceAttribute,
    IntAttribute,
    StringAttribute,
    encode,
)
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.devices.share import Share, enforcement_attributes, share_amounts
from kubelet_plugin.devices.whole import WholeGpu

_VERSIONS: Final = ("metadata.resource.k8s.io/v1beta1", "metadata.resource.k8s.io/v1alpha1")
_FOLDER: Final = "/var/run/kubernetes.io/dra-device-attributes"
_LABEL = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*")
_GO_ESCAPES: Final = str.maketrans(
    {character: f"\\u{ord(character):04x}" for character in "<>&\u2028\u2029"}
)
"""What Go's encoding/json escapes and Python's json does not."""


_GENERATIONS: Final = range(1, 2**63 - 1)
"""The generations that another can follow: consumers read them into 64 bits."""


class MetadataNameError(ValueError):
    """A name of the claim cannot be part of a path; names it and the rule."""


@dataclass(frozen=True, slots=True)
class DescribedDevice:
    """A device of a request."""

    pool: str
    name: str
    attributes: Mapping[str, DeviceAttribute]


@dataclass(frozen=True, slots=True)
class RequestMetadata:
    """What a file says."""

    driver: str
    claim: NodeClaim
    request: str
    """Name of the request, without that of a subrequest."""
    devices: tuple[DescribedDevice, ...]

    @property
    def container_path(self) -> str:
        """The path of the file in containers.

        It has the names that the pod's author knows: that of the claim, or, if the claim was made
        from a template, that of the claim in the pod.

        Raises:
            MetadataNameError: a name does not follow the API's rules.
        """
        if self.claim.pod_claim is None:
            folder = f"resourceclaims/{_valid(self.claim.name, _SUBDOMAIN)}"
        else:
            folder = f"resourceclaimtemplates/{_valid(self.claim.pod_claim, _LABEL)}"
        request = _valid(self.request, _LABEL)
        return f"{_FOLDER}/{folder}/{request}/{self.driver}-metadata.json"


def described(
    allocated: AllocatedDevice,
    device: GpuDevice,
    uuid: str | None,
    settings: PublishSettings,
    *,
    limited: bool = False,
    mps: bool = False,
) -> DescribedDevice:
    """Returns what containers are told of a device.

    Its attributes are those of its ResourceSlice. A partition also has the `uuid` with which it was
    made, and a share its amounts, `memoryMiB` and `coresPercent`, and what keeps the claim within
    them: whether the driver limits the claim's pod is `limited`, and whether it has an MPS daemon
    is `mps`.
    """
    own = dict(_own_attributes(allocated, device, uuid, limited=limited, mps=mps))
    attributes = {**device.published(settings).attributes, **own}
    return DescribedDevice(allocated.pool, allocated.device, dict(sorted(attributes.items())))


def _own_attributes(
    allocated: AllocatedDevice, device: GpuDevice, uuid: str | None, *, limited: bool, mps: bool
) -> Iterator[tuple[str, DeviceAttribute]]:
    match device:
        case Partition() | FoundPartition():
            if uuid is not None:
                yield "uuid", StringAttribute(uuid)
        case Share():
            levels = device.levels_in_force(limited=limited, mps=mps)
            yield from enforcement_attributes(levels).items()
            amounts = share_amounts(allocated.consumed_capacity)
            if amounts is not None and not allocated.admin_access:
                yield "memoryMiB", IntAttribute(amounts.memory_mib)
                yield "coresPercent", IntAttribute(amounts.cores)
        case WholeGpu() | Monitor():
            return
        case _:
            assert_never(device)


def render_metadata(metadata: RequestMetadata, generation: int) -> bytes:
    """Returns the content of the file. Equal metadata of one generation has equal content."""
    objects = (_object(metadata, version, generation) for version in _VERSIONS)
    return "".join(f"{_go_json(document)}\n" for document in objects).encode()


def generation_of(content: bytes) -> int:
    """Returns the generation of a file's content; 0 if it is damaged."""
    try:
        first, _ = json.JSONDecoder().raw_decode(content.decode())
        generation = int(first["metadata"]["generation"])
    except (ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return 0
    return generation if generation in _GENERATIONS else 0


def _object(metadata: RequestMetadata, version: str, generation: int) -> dict[str, Any]:
    claim = metadata.claim
    subrequest = claim.subrequests.get(metadata.request)
    request = metadata.request if subrequest is None else f"{metadata.request}/{subrequest}"
    pod_claim = {} if claim.pod_claim is None else {"podClaimName": claim.pod_claim}
    return {
        "kind": "DeviceMetadata",
        "apiVersion": version,
        "metadata": {
            "name": claim.name,
            "namespace": claim.namespace,
            "uid": claim.uid,
            "generation": generation,
        },
        **pod_claim,
        "requests": [
            {
                "name": request,
                "devices": [_device(metadata.driver, device) for device in metadata.devices],
            }
        ],
    }


def _device(driver: str, device: DescribedDevice) -> dict[str, Any]:
    attributes = dict(sorted(device.attributes.items()))
    encoded = encode(Device(device.name, attributes=attributes)).get("attributes", {})
    written = {"attributes": encoded} if encoded else {}
    return {"driver": driver, "pool": device.pool, "name": device.name, **written}


def _go_json(document: Mapping[str, Any]) -> str:
    return json.dumps(document, indent=2, ensure_ascii=False).translate(_GO_ESCAPES)


def _valid(name: str, rule: re.Pattern[str]) -> str:
    if not rule.fullmatch(name):
        raise MetadataNameError(
            f"name {name!r} of the claim or of a request must consist of lowercase letters, digits "
            "and hyphens, and begin and end with a letter or digit; a claim's annotation "
            "resource.kubernetes.io/pod-claim-name may have set it"
        )
    return name
