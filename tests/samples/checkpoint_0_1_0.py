"""How version 0.1.0 reads a checkpoint, frozen.

A plugin of that version may run beside a newer one during a rolling update, and after a downgrade.
These are its rules with everything else left out, so they do not follow changes of the product and
must not: do not edit them.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

_CONFIG = {"apiVersion": "resource.carina.dev/v1alpha1", "kind": "GpuConfig"}


class UnreadableError(Exception):
    """Version 0.1.0 cannot use the file."""


@dataclass(frozen=True)
class Device:
    request: str
    pool: str
    device: str
    admin_access: bool
    share_id: str | None


@dataclass(frozen=True)
class Claim:
    uid: str
    namespace: str
    name: str
    devices: tuple[Device, ...]


@dataclass(frozen=True)
class Checkpoint:
    boot_id: str
    claims: Mapping[str, Claim]


def read(content: bytes) -> Checkpoint:
    """Reads a file; raises UnreadableError."""
    try:
        return _read(content)
    except (KeyError, ValueError, TypeError, AttributeError) as error:
        raise UnreadableError(repr(error)) from error


def overlap(checkpoint: Checkpoint, claim: Claim) -> bool:
    """Whether another claim of the checkpoint holds a device of this one."""
    wanted = {(d.pool, d.device): d for d in _holding(claim)}
    for other in checkpoint.claims.values():
        if other.uid == claim.uid:
            continue
        for held in _holding(other):
            mine = wanted.get((held.pool, held.device))
            if mine is not None and (mine.share_id is None or held.share_id is None):
                return True
    return False


def _holding(claim: Claim) -> Iterable[Device]:
    return (device for device in claim.devices if not device.admin_access)


def _read(content: bytes) -> Checkpoint:
    first, *later = content.split(b"\n")[:-1] or [content]
    state = json.loads(first)
    if state["version"] != 1:
        raise ValueError(state["version"])
    claims = {claim.uid: claim for claim in map(_claim, state["claims"])}
    for line in map(json.loads, later):
        if "gone" not in line:
            claim = _claim(line["claim"])
            claims[claim.uid] = claim
        elif claims.pop(_text(line, "gone"), None) is None:
            raise ValueError(line)
    return Checkpoint(str(state["bootID"]), claims)


def _claim(content: Mapping[str, Any]) -> Claim:
    return Claim(
        uid=_text(content, "uid"),
        namespace=_text(content, "namespace"),
        name=_text(content, "name"),
        devices=tuple(_device(device) for device in content["devices"]),
    )


def _device(content: Mapping[str, Any]) -> Device:
    share = content.get("shareID")
    # Fields that the version's GpuConfig does not have are ignored, the others strict.
    if {k: v for k, v in content["config"].items() if k in _CONFIG} != _CONFIG:
        raise ValueError(content["config"])
    return Device(
        request=_text(content, "request"),
        pool=_text(content, "pool"),
        device=_text(content, "device"),
        admin_access=content.get("adminAccess", False) is True,
        share_id=None if share is None else str(share),
    )


def _text(content: Mapping[str, Any], field: str) -> str:
    value = content[field]
    if not isinstance(value, str) or not value:
        raise ValueError(field)
    return value
