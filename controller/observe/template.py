"""A hash of what a pod has from its template."""

import json
import zlib
from collections.abc import Mapping
from typing import Any, Final

_FIELDS: Final = (
    "hostNetwork",
    "nodeSelector",
    "overhead",
    "priorityClassName",
    "resourceClaims",
    "runtimeClassName",
    "schedulerName",
    "tolerations",
    "topologySpreadConstraints",
)
"""The fields of a spec that kube-scheduler reads, and that nobody changes for a single pod."""
_POD_TERMS: Final = ("podAffinity", "podAntiAffinity")
"""Node affinity is not among them: the controller pins a pod by it."""
_TOKEN_VOLUME: Final = "kube-api-access-"  # noqa: S105 - the name of a volume
"""How the volume begins that the API server adds to each pod, with a name of its own."""


def template_hash(spec: Mapping[str, Any]) -> int:
    """Equal for pods that are the same to kube-scheduler, but for their nodes."""
    affinity = spec.get("affinity") or {}
    read = (
        [spec.get(name) for name in _FIELDS],
        [affinity.get(name) for name in _POD_TERMS],
        [
            volume
            for volume in spec.get("volumes") or ()
            if not volume.get("name", "").startswith(_TOKEN_VOLUME)
        ],
        [
            (container.get("image"), container.get("ports"), container.get("resources"))
            for container in (*(spec.get("initContainers") or ()), *(spec.get("containers") or ()))
        ],
    )
    return zlib.crc32(json.dumps(read, sort_keys=True).encode())
