"""The checkpoint: which claims hold devices of this node.

It is the desired state and nothing else. A claim is recorded before anything is made for it, and
struck out after everything made for it is gone; what has to exist for a claim follows from its
entry and is made again whenever it is missing. So there are no half-way states to record: killed
at any line, it leaves an entry that the next call or the next repair completes, or none.

Written down it is JSON lines: the state as it once was, then each change since. A last line without
an end is a change that was cut off before anybody was told of it, and does not count; any other
line that cannot be read makes the checkpoint unreadable. Reading ignores fields it does not know,
so that a plugin reads what a newer one of the same version number wrote.
"""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from carina_dra.config.device import GpuConfig, parse_gpu_config
from kubelet_plugin.claims.claim import ClaimDevice, PreparedClaim

T = TypeVar("T")

VERSION = 1


class CheckpointError(Exception):
    """A checkpoint that cannot be read: says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The claims that hold devices of this node, by UID, and the boot in which that was written."""

    boot_id: str
    claims: Mapping[str, PreparedClaim]

    def with_claim(self, claim: PreparedClaim) -> "Checkpoint":
        """Gives it with the claim added, or replaced where its UID is there."""
        return replace(self, claims={**self.claims, claim.uid: claim})

    def without(self, uid: str) -> "Checkpoint":
        """Gives it without that claim."""
        return replace(self, claims={u: c for u, c in self.claims.items() if u != uid})


@dataclass(frozen=True, slots=True)
class Written:
    """A claim was added, or replaced."""

    claim: PreparedClaim


@dataclass(frozen=True, slots=True)
class StruckOut:
    """A claim was removed."""

    uid: str


Change: TypeAlias = Written | StruckOut


def change(before: Checkpoint, after: Checkpoint) -> Change | None:
    """Gives the one claim in which they differ; None where they differ in more, or in nothing."""
    if before.boot_id != after.boot_id:
        return None
    changes: list[Change] = [StruckOut(uid) for uid in before.claims.keys() - after.claims.keys()]
    changes += [Written(c) for uid, c in after.claims.items() if before.claims.get(uid) != c]
    return changes[0] if len(changes) == 1 else None


def render(checkpoint: Checkpoint) -> bytes:
    """Gives the line with which a file begins: the same for the same checkpoint."""
    claims = [_claim_json(claim) for _, claim in sorted(checkpoint.claims.items())]
    return _line({"version": VERSION, "bootID": checkpoint.boot_id, "claims": claims})


def render_change(changed: Change) -> bytes:
    """Gives the line that a change adds to the file."""
    match changed:
        case Written(claim):
            return _line({"claim": _claim_json(claim)})
        case StruckOut(uid):
            return _line({"gone": uid})


def parse(content: bytes) -> Checkpoint:
    """Reads a file's content.

    Raises:
        CheckpointError: saying which line is wrong, and what is wrong with it.
    """
    first, *later = content.split(b"\n")[:-1] or [content]
    checkpoint = _parsed(_parse_state, first, 1)
    claims = dict(checkpoint.claims)
    for number, line in enumerate(later, start=2):
        match _parsed(_parse_change, line, number):
            case Written(claim):
                claims[claim.uid] = claim
            case StruckOut(uid) if claims.pop(uid, None) is None:
                raise CheckpointError(f"line {number} strikes out the unknown claim {uid}")
    return Checkpoint(checkpoint.boot_id, claims)


def overlap(checkpoint: Checkpoint, claim: PreparedClaim) -> tuple[str, PreparedClaim] | None:
    """Finds a device of `claim` that another claim holds: the device's name and that claim.

    Results with admin access neither hold a device nor are kept from one (KEP-5018), and two
    results that both name a share are told apart by the allocator's capacities, not here.
    """
    wanted = {(d.pool, d.device): d for d in _holding(claim.devices)}
    for other in checkpoint.claims.values():
        if other.uid == claim.uid:
            continue
        for held in _holding(other.devices):
            mine = wanted.get((held.pool, held.device))
            if mine is not None and (mine.share_id is None or held.share_id is None):
                return held.device, other
    return None


def _holding(devices: Iterable[ClaimDevice]) -> Iterable[ClaimDevice]:
    return (device for device in devices if not device.admin_access)


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(parse_line: Callable[[Any], T], line: bytes, number: int) -> T:
    try:
        return parse_line(json.loads(line))
    except CheckpointError as error:
        raise CheckpointError(f"line {number} {error}") from error
    except KeyError as error:
        raise CheckpointError(f"line {number} lacks the field {error}") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"line {number} is damaged: {error}") from error


def _parse_state(content: Mapping[str, Any]) -> Checkpoint:
    if content["version"] != VERSION:
        raise CheckpointError(f"is of version {content['version']}, not {VERSION}")
    claims = [_parse_claim(claim) for claim in content["claims"]]
    return Checkpoint(str(content["bootID"]), {claim.uid: claim for claim in claims})


def _parse_change(content: Mapping[str, Any]) -> Change:
    if "gone" in content:
        return StruckOut(_text(content, "gone"))
    return Written(_parse_claim(content["claim"]))


def _claim_json(claim: PreparedClaim) -> dict[str, Any]:
    devices = [_device_json(device) for device in claim.devices]
    return {
        "uid": claim.uid,
        "namespace": claim.namespace,
        "name": claim.name,
        "devices": devices,
    }


def _device_json(device: ClaimDevice) -> dict[str, Any]:
    content: dict[str, Any] = {
        "request": device.request,
        "pool": device.pool,
        "device": device.device,
        "config": device.config.model_dump(exclude_defaults=True)
        | {"apiVersion": device.config.apiVersion, "kind": device.config.kind},
    }
    if device.admin_access:
        content["adminAccess"] = True
    if device.share_id is not None:
        content["shareID"] = device.share_id
    return content


def _parse_claim(content: Mapping[str, Any]) -> PreparedClaim:
    return PreparedClaim(
        uid=_text(content, "uid"),
        namespace=_text(content, "namespace"),
        name=_text(content, "name"),
        devices=tuple(_parse_device(device) for device in content["devices"]),
    )


def _parse_device(content: Mapping[str, Any]) -> ClaimDevice:
    share = content.get("shareID")
    known = {k: v for k, v in content["config"].items() if k in GpuConfig.model_fields}
    return ClaimDevice(
        request=_text(content, "request"),
        pool=_text(content, "pool"),
        device=_text(content, "device"),
        config=parse_gpu_config("config", known),
        admin_access=content.get("adminAccess", False) is True,
        share_id=None if share is None else str(share),
    )


def _text(content: Mapping[str, Any], field: str) -> str:
    value = content[field]
    if not isinstance(value, str) or not value:
        raise CheckpointError(f"has {value!r} for the field {field}, not a name")
    return value
