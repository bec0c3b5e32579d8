"""The checkpoint: which claims hold devices of this node, on disk.

It is the desired state and nothing else. A claim is written here before anything is made for it,
and struck out after everything made for it is gone; what has to exist for a claim follows from
its entry and is made again whenever it is missing. So there are no half-way states to record:
killed at any line, it leaves an entry that the next call or the next repair completes, or none.

The file is replaced as a whole (temporary file, fsync, rename, fsync of the folder) and is on disk
when `CheckpointFile.store` returns. During a rolling update several plugin processes share it,
under the lock of `kubelet_plugin.lock`. Reading ignores fields it does not know, so that a plugin
reads what a newer one of the same version number wrote.
"""

import contextlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from carina_dra.device_config import GpuConfig, parse_gpu_config
from kubelet_plugin.claim import ClaimDevice, PreparedClaim

VERSION = 1


class CheckpointError(Exception):
    """A checkpoint that cannot be read: names the file and what is wrong with it."""


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
class _Stamp:
    """What changes whenever the file is replaced."""

    inode: int
    modified_ns: int
    size: int


class CheckpointFile:
    """The checkpoint's file. Every method is to be called with the node's lock held."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: tuple[_Stamp, Checkpoint] | None = None

    @property
    def path(self) -> Path:
        """Where it lies."""
        return self._path

    def load(self) -> Checkpoint | None:
        """Gives what is on disk, None where nothing is yet.

        Raises:
            CheckpointError: there is a file, and it cannot be read.
        """
        try:
            stamp = self._stamp()
        except FileNotFoundError:
            self._known = None
            return None
        if self._known is None or self._known[0] != stamp:
            try:
                self._known = stamp, parse(self._path.read_bytes())
            except (OSError, CheckpointError) as error:
                raise CheckpointError(f"checkpoint {self._path}: {error}") from error
        return self._known[1]

    def store(self, checkpoint: Checkpoint) -> None:
        """Puts it on disk, durably, in the place of what was there."""
        folder = self._path.parent
        temporary = folder / f"{self._path.name}.tmp"
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        try:
            with os.fdopen(descriptor, "wb", closefd=False) as file:
                file.write(render(checkpoint))
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        temporary.rename(self._path)
        sync_folder(folder)
        self._known = self._stamp(), checkpoint

    def keep_copy(self) -> Path:
        """Gives an unreadable file a second name, for whoever looks into it, before it is replaced.

        The name follows from the file, so that being killed and starting over makes one copy.
        """
        copy = self._path.with_name(f"{self._path.name}.unreadable-{self._stamp().modified_ns}")
        with contextlib.suppress(FileExistsError):
            copy.hardlink_to(self._path)
        sync_folder(self._path.parent)
        return copy

    def _stamp(self) -> _Stamp:
        status = self._path.stat()
        return _Stamp(status.st_ino, status.st_mtime_ns, status.st_size)


def sync_folder(folder: Path) -> None:
    """Puts a folder's entries on disk: without it a rename may be lost with the power."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def render(checkpoint: Checkpoint) -> bytes:
    """Gives the file's content: the same for the same checkpoint."""
    content = {
        "version": VERSION,
        "bootID": checkpoint.boot_id,
        "claims": [_claim_json(claim) for _, claim in sorted(checkpoint.claims.items())],
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def parse(content: bytes) -> Checkpoint:
    """Reads a file's content.

    Raises:
        CheckpointError: saying what is wrong with it.
    """
    try:
        document = json.loads(content)
        if document["version"] != VERSION:
            raise CheckpointError(f"is of version {document['version']}, not {VERSION}")
        claims = [_parse_claim(claim) for claim in document["claims"]]
        return Checkpoint(str(document["bootID"]), {claim.uid: claim for claim in claims})
    except KeyError as error:
        raise CheckpointError(f"lacks the field {error}") from error
    except (ValueError, TypeError) as error:
        raise CheckpointError(f"is damaged: {error}") from error


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
        raise CheckpointError(f"field {field} is {value!r}, not a name")
    return value
