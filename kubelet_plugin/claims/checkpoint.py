"""The checkpoint: which claims hold devices of this node.

It is the desired state and nothing else. A claim is recorded before anything is made for it, and
struck out after everything made for it is gone; what has to exist for a claim follows from its
entry and is made again whenever it is missing. So there are no half-way states to record: killed
at any line, it leaves an entry that the next call or the next repair completes, or none.

The file is JSON lines: a whole state, then each change since. A last line without an end is a
change that was cut off before its call was answered, and does not count; any other line that cannot
be read makes the checkpoint unreadable. Unknown fields are ignored, so that a plugin reads what a
newer one of the same version number wrote.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from carina_dra.config.device import read_recorded
from carina_dra.quantity import Quantity
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim
from kubelet_plugin.devices.conflict import Hold, conflict

T = TypeVar("T")

VERSION = 1


class CheckpointError(Exception):
    """A checkpoint that cannot be read: says what is wrong with it."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The claims that hold devices of this node, by UID, and the boot in which that was written."""

    boot_id: str
    claims: Mapping[str, NodeClaim]

    def with_claim(self, claim: NodeClaim) -> "Checkpoint":
        """Gives it with the claim added, or replaced where its UID is there."""
        return replace(self, claims={**self.claims, claim.uid: claim})

    def without(self, uid: str) -> "Checkpoint":
        """Gives it without that claim."""
        return replace(self, claims={u: c for u, c in self.claims.items() if u != uid})


@dataclass(frozen=True, slots=True)
class Recorded:
    """A claim was added, or replaced."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class Removed:
    """A claim was removed."""

    uid: str


Change: TypeAlias = Recorded | Removed


def change(before: Checkpoint, after: Checkpoint) -> Change | None:
    """Gives the one claim in which they differ; None where they differ in more, or in nothing."""
    if before.boot_id != after.boot_id:
        return None
    changes: list[Change] = [Removed(uid) for uid in before.claims.keys() - after.claims.keys()]
    changes += [Recorded(c) for uid, c in after.claims.items() if before.claims.get(uid) != c]
    return changes[0] if len(changes) == 1 else None


def render(checkpoint: Checkpoint) -> bytes:
    """Gives the line with which a file begins: the same for the same checkpoint."""
    claims = [_claim_json(claim) for _, claim in sorted(checkpoint.claims.items())]
    return _line({"version": VERSION, "bootID": checkpoint.boot_id, "claims": claims})


def render_change(changed: Change) -> bytes:
    """Gives the line that a change adds to the file."""
    match changed:
        case Recorded(claim):
            return _line({"claim": _claim_json(claim)})
        case Removed(uid):
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
            case Recorded(claim):
                claims[claim.uid] = claim
            case Removed(uid) if claims.pop(uid, None) is None:
                raise CheckpointError(f"line {number} strikes out the unknown claim {uid}")
    return Checkpoint(checkpoint.boot_id, claims)


def conflicting(checkpoint: Checkpoint, claim: NodeClaim) -> tuple[Hold, NodeClaim, Hold] | None:
    """Finds what keeps `claim` from its devices.

    Gives the device that it cannot have, the claim in its way and the device which that one holds.
    """
    holds = claim.holds
    for other in checkpoint.claims.values():
        if other.uid == claim.uid:
            continue
        for held in other.holds:
            for wanted in holds:
                if conflict(wanted, held):
                    return wanted, other, held
    return None


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(parse_line: Callable[[Any], T], line: bytes, number: int) -> T:
    try:
        return parse_line(json.loads(line))
    except CheckpointError as error:
        raise CheckpointError(f"line {number} {error}") from error
    except KeyError as error:
        raise CheckpointError(f"line {number} lacks the field {error}") from error
    except (ValueError, TypeError, AttributeError) as error:
        raise CheckpointError(f"line {number} is damaged: {error}") from error


def _parse_state(content: Mapping[str, Any]) -> Checkpoint:
    if content["version"] != VERSION:
        raise CheckpointError(f"is of version {content['version']}, not {VERSION}")
    claims = [_parse_claim(claim) for claim in content["claims"]]
    return Checkpoint(str(content["bootID"]), {claim.uid: claim for claim in claims})


def _parse_change(content: Mapping[str, Any]) -> Change:
    if "gone" in content:
        return Removed(_text(content, "gone"))
    return Recorded(_parse_claim(content["claim"]))


def _claim_json(claim: NodeClaim) -> dict[str, Any]:
    devices = [_device_json(device) for device in claim.devices]
    return {
        "uid": claim.uid,
        "namespace": claim.namespace,
        "name": claim.name,
        "devices": devices,
    }


def _device_json(device: AllocatedDevice) -> dict[str, Any]:
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
    if device.consumed_capacity:
        content["consumedCapacity"] = {
            name: str(quantity) for name, quantity in device.consumed_capacity.items()
        }
    return content


def _parse_claim(content: Mapping[str, Any]) -> NodeClaim:
    return NodeClaim(
        uid=_text(content, "uid"),
        namespace=_text(content, "namespace"),
        name=_text(content, "name"),
        devices=tuple(_parse_device(device) for device in content["devices"]),
    )


def _parse_device(content: Mapping[str, Any]) -> AllocatedDevice:
    share = content.get("shareID")
    return AllocatedDevice(
        request=_text(content, "request"),
        pool=_text(content, "pool"),
        device=_text(content, "device"),
        config=read_recorded("config", content["config"]),
        admin_access=content.get("adminAccess", False) is True,
        share_id=None if share is None else str(share),
        consumed_capacity={
            str(name): Quantity.parse(str(quantity))
            for name, quantity in content.get("consumedCapacity", {}).items()
        },
    )


def _text(content: Mapping[str, Any], field: str) -> str:
    value = content[field]
    if not isinstance(value, str) or not value:
        raise CheckpointError(f"has {value!r} for the field {field}, not a name")
    return value
