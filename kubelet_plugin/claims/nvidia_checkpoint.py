"""The checkpoint of NVIDIA's DRA driver: the claims that it has prepared on this node.

If Carina takes the place of that driver, its checkpoint is in the plugin directory that both use.
It is read and never written. It has the same claims in several versions, so that older releases
can read it; the newest that is known is read here, and only fields that all of them have. Its
checksum is not verified, because it depends on the release that wrote it.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubelet_plugin.devices.conflict import DeviceHold
from kubelet_plugin.devices.name import parse_name

FILE_NAME: Final = "checkpoint.json"
"""The file's name in the plugin directory."""

_VERSIONS: Final = ("v2", "v1")
_UNPREPARED: Final = frozenset({"PrepareStarted", "PrepareAborted"})
"""States of claims that are not prepared. Any other state may be that of a prepared one."""


class NvidiaCheckpointError(Exception):
    """The content is damaged, or its format is not supported; the message says why."""


@dataclass(frozen=True, slots=True)
class NvidiaCheckpoint:
    """The claims in the checkpoint, by UID."""

    prepared: Mapping[str, tuple[DeviceHold, ...]]
    """Claims that are prepared, with their devices, except those with admin access."""
    unprepared: frozenset[str]
    """Claims of an earlier boot, of which nothing is left on the node, and claims that were not
    prepared completely, so that no container of theirs has started."""


@dataclass(frozen=True, slots=True)
class UnreadableCheckpoint:
    """The checkpoint cannot be read, so the claims in it are not known."""

    reason: str


def parse_nvidia_checkpoint(
    content: bytes, *, driver: str, boot_id: str | None
) -> NvidiaCheckpoint:
    """Reads the file's content. `boot_id` is that of the node, or None if it is not known.

    Raises:
        NvidiaCheckpointError: the content is damaged, or its format is not supported.
    """
    try:
        return _parse(json.loads(content), driver, boot_id)
    except KeyError as error:
        raise NvidiaCheckpointError(f"it has no field {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise NvidiaCheckpointError(f"it is damaged: {error}") from error


def _parse(content: Mapping[str, Any], driver: str, boot_id: str | None) -> NvidiaCheckpoint:
    newest = next((content[version] for version in _VERSIONS if content.get(version)), None)
    if newest is None:
        raise NvidiaCheckpointError(f"it has none of the versions {', '.join(_VERSIONS)}")
    listed = newest["preparedClaims"]
    entries = {} if listed is None else dict(listed.items())
    written_in = newest.get("nodeBootID")
    if boot_id and written_in and written_in != boot_id:
        return NvidiaCheckpoint({}, frozenset(entries))
    unprepared = frozenset(
        uid for uid, entry in entries.items() if entry.get("checkpointState") in _UNPREPARED
    )
    prepared = {
        uid: _holds(entry, driver) for uid, entry in entries.items() if uid not in unprepared
    }
    return NvidiaCheckpoint(prepared, unprepared)


def _holds(entry: Mapping[str, Any], driver: str) -> tuple[DeviceHold, ...]:
    return tuple(
        DeviceHold(parse_name(result["device"]), result.get("shareID"))
        for result in entry["status"]["allocation"]["devices"]["results"]
        if result["driver"] == driver and not result.get("adminAccess")
    )
