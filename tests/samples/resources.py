"""Objects of the API as the API server writes them, with every field it has in one or another."""

import json
from pathlib import Path
from typing import Any

from carina_dra.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceClaimTemplate,
    ResourceSlice,
)
from carina_dra.resource.schema import Struct

_FOLDER = Path(__file__).parent / "resource_objects"

EXAMPLES = sorted(path.stem for path in _FOLDER.glob("*.json"))
KINDS: dict[str, type[Struct]] = {
    "DeviceClass": DeviceClass,
    "DeviceTaintRule": DeviceTaintRule,
    "ResourceClaim": ResourceClaim,
    "ResourceClaimTemplate": ResourceClaimTemplate,
    "ResourceSlice": ResourceSlice,
}


def example(name: str) -> dict[str, Any]:
    """An object of its own, to be changed at will."""
    body: dict[str, Any] = json.loads((_FOLDER / f"{name}.json").read_text())
    return body


def put(body: dict[str, Any], path: str, value: object) -> None:
    """Sets what is at a path such as `spec.devices.0.name`; None takes it away."""
    *steps, last = path.split(".")
    target: Any = body
    for step in steps:
        target = target[int(step) if isinstance(target, list) else step]
    if value is None:
        del target[last]
    else:
        target[last] = value
