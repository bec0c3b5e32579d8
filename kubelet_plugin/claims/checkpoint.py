"""The checkpoint: which claims hold devices of this node.

The checkpoint holds the desired state only. A claim is recorded before anything is created for it,
and removed after everything that was created for it has been removed. What a claim needs follows
from its entry, and is created again if it is missing. Intermediate states need no record: if the
plugin is killed at any point, the next call or the next repair completes what the entry says.

The file consists of JSON lines: first a complete state, then one line for each later change. A last
line without a newline is a change that was cut off before its call returned; it is ignored. Any
other line that cannot be read makes the checkpoint unreadable. Unknown fields are ignored, so that
a plugin can read what a newer plugin with the same format version wrote. For the same reason,
`config` is always a GpuConfig, the kind that every plugin knows. A configuration of another kind is
in `deviceConfig`, and is ignored by plugins that do not know the kind.

A file whose `version` is another one is not damaged, but holds claims in a form that this plugin
does not know. It is refused and left as it is.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeAlias, TypeVar

from carina_dra.config.device import DeviceConfig, GpuConfig
from carina_dra.config.reading import is_of_known_kind, read_recorded
from carina_dra.quantity import Quantity
from kubelet_plugin.claims.claim import AllocatedDevice, NodeClaim, accepted_config
from kubelet_plugin.devices.conflict import DeviceHold, first_conflict

T = TypeVar("T")

VERSION = 1


class CheckpointError(Exception):
    """The checkpoint cannot be read; the message says why."""


class CheckpointFormError(Exception):
    """The checkpoint has another form than this plugin knows; names the field and the remedy."""


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The claims that hold devices of this node, by UID, and the boot that recorded them."""

    boot_id: str
    claims: Mapping[str, NodeClaim]

    def with_claim(self, claim: NodeClaim) -> "Checkpoint":
        """Returns a copy in which the claim is added, or replaces the one with its UID.

        Which pods use it is known of a call only.
        """
        recorded = claim if claim.pods is None else replace(claim, pods=None)
        return replace(self, claims={**self.claims, claim.uid: recorded})

    def without(self, uid: str) -> "Checkpoint":
        """Returns a copy without the claim with this UID."""
        return replace(self, claims={u: c for u, c in self.claims.items() if u != uid})


@dataclass(frozen=True, slots=True)
class ClaimRecorded:
    """A claim was added or replaced."""

    claim: NodeClaim


@dataclass(frozen=True, slots=True)
class ClaimRemoved:
    """A claim was removed."""

    uid: str


Change: TypeAlias = ClaimRecorded | ClaimRemoved


def change(before: Checkpoint, after: Checkpoint) -> Change | None:
    """Returns the change from `before` to `after`; None if not exactly one claim differs."""
    if before.boot_id != after.boot_id:
        return None
    changes: list[Change] = [
        ClaimRemoved(uid) for uid in before.claims.keys() - after.claims.keys()
    ]
    changes += [ClaimRecorded(c) for uid, c in after.claims.items() if before.claims.get(uid) != c]
    return changes[0] if len(changes) == 1 else None


def render_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Returns the first line of a file. Equal checkpoints have equal lines."""
    claims = [_claim_json(claim) for _, claim in sorted(checkpoint.claims.items())]
    return _line({"version": VERSION, "bootID": checkpoint.boot_id, "claims": claims})


def render_change(changed: Change) -> bytes:
    """Returns the line that records a change."""
    match changed:
        case ClaimRecorded(claim):
            return _line({"claim": _claim_json(claim)})
        case ClaimRemoved(uid):
            return _line({"gone": uid})


def parse_checkpoint(content: bytes) -> Checkpoint:
    """Reads a file's content.

    Raises:
        CheckpointError: a line cannot be read; the message names the line and the reason.
        CheckpointFormError: the content has another form.
    """
    first, *later = content.split(b"\n")[:-1] or [content]
    checkpoint = _parsed(_parse_state, first, 1)
    claims = dict(checkpoint.claims)
    for number, line in enumerate(later, start=2):
        match _parsed(_parse_change, line, number):
            case ClaimRecorded(claim):
                claims[claim.uid] = claim
            case ClaimRemoved(uid) if claims.pop(uid, None) is None:
                raise CheckpointError(f"line {number} removes claim {uid}, which is not recorded")
    return Checkpoint(checkpoint.boot_id, claims)


def check_form(first_line: bytes) -> None:
    """Checks the form of a file by its first line. Damage is found by `parse_checkpoint` alone.

    Raises:
        CheckpointFormError: the file has another form.
    """
    try:
        content = json.loads(first_line)
    except (ValueError, RecursionError):
        return
    if isinstance(content, dict):
        _check_version(content)


def conflicting(
    checkpoint: Checkpoint, claim: NodeClaim
) -> tuple[DeviceHold, NodeClaim, DeviceHold] | None:
    """Returns a conflict between a device of `claim` and one that another claim holds, or None.

    The result is the device that `claim` cannot have, the other claim, and the device it holds.
    """
    holds = claim.holds
    for other in checkpoint.claims.values():
        if other.uid == claim.uid or claim.gpus.isdisjoint(other.gpus):
            continue
        clash = first_conflict(holds, other.holds)
        if clash is not None:
            return clash[0], other, clash[1]
    return None


def _line(content: Mapping[str, object]) -> bytes:
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def _parsed(parse_line: Callable[[Any], T], line: bytes, number: int) -> T:
    try:
        return parse_line(json.loads(line))
    except CheckpointError as error:
        raise CheckpointError(f"line {number} {error}") from error
    except KeyError as error:
        raise CheckpointError(f"line {number} has no field {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise CheckpointError(f"line {number} is damaged: {error}") from error


def _check_version(content: Mapping[str, Any]) -> None:
    version = content.get("version")
    if version != VERSION:
        found = "no field version" if version is None else f"{version!r:.40} in field version"
        raise CheckpointFormError(
            f"line 1 has {found}, and this version of Carina reads only {VERSION}; run the version "
            "that wrote the file, or rename the file, and the plugin restores its claims from "
            "their CDI specs and the API server"
        )


def _parse_state(content: Mapping[str, Any]) -> Checkpoint:
    _check_version(content)
    claims = [_parse_claim(claim) for claim in content["claims"]]
    return Checkpoint(str(content["bootID"]), {claim.uid: claim for claim in claims})


def _parse_change(content: Mapping[str, Any]) -> Change:
    if "gone" in content:
        return ClaimRemoved(_text(content, "gone"))
    return ClaimRecorded(_parse_claim(content["claim"]))


def _claim_json(claim: NodeClaim) -> dict[str, Any]:
    content: dict[str, Any] = {
        "uid": claim.uid,
        "namespace": claim.namespace,
        "name": claim.name,
        "devices": [_device_json(device) for device in claim.devices],
    }
    if claim.pod_claim is not None:
        content["podClaimName"] = claim.pod_claim
    if claim.subrequests:
        content["subrequests"] = dict(claim.subrequests)
    return content


def _device_json(device: AllocatedDevice) -> dict[str, Any]:
    content: dict[str, Any] = {
        "request": device.request,
        "pool": device.pool,
        "device": device.device,
        **_configs_json(device.config),
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


def _configs_json(config: DeviceConfig) -> dict[str, Any]:
    if isinstance(config, GpuConfig):
        return {"config": _config_json(config)}
    return {"config": _config_json(GpuConfig()), "deviceConfig": _config_json(config)}


def _config_json(config: DeviceConfig) -> dict[str, Any]:
    header = {"apiVersion": config.apiVersion, "kind": config.kind}
    return config.model_dump(exclude_defaults=True) | header


def _parse_config(content: Mapping[str, Any], device: str) -> DeviceConfig:
    """Returns the configuration; the default if its kind is not known.

    Also if a plugin that does not know the kind has dropped `deviceConfig`.
    """
    recorded = content.get("deviceConfig")
    if recorded is not None and is_of_known_kind(recorded):
        config = read_recorded("deviceConfig", recorded)
    else:
        config = read_recorded("config", content["config"])
    accepted = accepted_config(device)
    return config if isinstance(config, accepted) else accepted()


def _parse_claim(content: Mapping[str, Any]) -> NodeClaim:
    return NodeClaim(
        uid=_text(content, "uid"),
        namespace=_text(content, "namespace"),
        name=_text(content, "name"),
        devices=tuple(_parse_device(device) for device in content["devices"]),
        pod_claim=_text(content, "podClaimName") if "podClaimName" in content else None,
        subrequests={
            str(request): str(subrequest)
            for request, subrequest in content.get("subrequests", {}).items()
        },
    )


def _parse_device(content: Mapping[str, Any]) -> AllocatedDevice:
    share = content.get("shareID")
    return AllocatedDevice(
        request=_text(content, "request"),
        pool=_text(content, "pool"),
        device=_text(content, "device"),
        config=_parse_config(content, _text(content, "device")),
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
        raise CheckpointError(
            f"has {value!r} in field {field}, which must be a string that is not empty"
        )
    return value
