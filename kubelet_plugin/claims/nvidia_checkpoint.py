"""The checkpoint of NVIDIA's DRA driver: the claims that it has prepared on this node.

If Carina takes the place of that driver, its checkpoint is in the plugin directory that both use.
It is read and never written. It has the same claims in several versions, so that older releases
can read it; the newest is read here, and only fields that all of them have. Its checksum is not
verified, because it depends on the release that wrote it.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from kubelet_plugin.devices.conflict import Hold
from kubelet_plugin.devices.name import parse_name

FILE_NAME: Final = "checkpoint.json"
"""The file's name in the plugin directory."""

_VERSIONS: Final = ("v2", "v1")
_COMPLETED: Final = "PrepareCompleted"


class NvidiaCheckpointError(Exception):
    """The checkpoint cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class NvidiaClaim:
    """A claim that NVIDIA's driver has prepared."""

    uid: str
    holds: tuple[Hold, ...]
    """Its devices, without those with admin access."""


def parse_nvidia_checkpoint(
    content: bytes, *, driver: str, boot_id: str | None
) -> tuple[NvidiaClaim, ...]:
    """Returns the claims that were prepared completely since the node's last boot.

    Claims of an earlier boot have nothing left on the node, and no container of a claim that was
    not prepared completely has started. `boot_id` is None if it is not known.

    Raises:
        NvidiaCheckpointError: the content is damaged, or its format is not known.
    """
    try:
        return tuple(_claims(json.loads(content), driver, boot_id))
    except KeyError as error:
        raise NvidiaCheckpointError(f"it has no field {error}") from error
    except (ValueError, TypeError, AttributeError, RecursionError) as error:
        raise NvidiaCheckpointError(f"it is damaged: {error}") from error


def _claims(content: Mapping[str, Any], driver: str, boot_id: str | None) -> Iterator[NvidiaClaim]:
    newest = next((content[version] for version in _VERSIONS if content.get(version)), None)
    if newest is None:
        raise NvidiaCheckpointError(f"it has none of the versions {', '.join(_VERSIONS)}")
    written_by = newest.get("nodeBootID")
    if boot_id and written_by and written_by != boot_id:
        return
    for uid, entry in (newest["preparedClaims"] or {}).items():
        if entry.get("checkpointState", _COMPLETED) == _COMPLETED:
            results = entry["status"]["allocation"]["devices"]["results"]
            yield NvidiaClaim(
                uid,
                tuple(
                    Hold(parse_name(result["device"]), result.get("shareID"))
                    for result in results
                    if result["driver"] == driver and not result.get("adminAccess")
                ),
            )
