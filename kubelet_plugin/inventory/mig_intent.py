"""What Carina makes on a GPU with MIG, recorded before it is made.

NVML does not say who made a GPU instance or switched MIG mode on. What an intent names is Carina's,
and everything else is an administrator's and never removed. An instance lasts until the node is
rebooted, so an intent of another boot names nothing.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kubelet_plugin.inventory.mig import MigPlacement, MigSite

_VERSION = 1


class MigIntentError(Exception):
    """Recorded intents cannot be read; the message says why."""


@dataclass(frozen=True, slots=True)
class MigIntents:
    """What Carina has made, or was about to make, on one GPU since the node's boot."""

    gpu: str
    """`gpu-<minor>`, as the GPU was named when the last intent was recorded."""
    pci_bus_id: str
    mode: bool = False
    """Whether Carina switched MIG mode on."""
    instances: Mapping[str, MigSite] = field(default_factory=dict)
    """The GPU instances, by the name of the device."""
    time_slice: bool = False
    """Whether Carina has set the length of time slices."""

    def __bool__(self) -> bool:
        return self.mode or bool(self.instances) or self.time_slice

    def with_instance(self, device: str, site: MigSite) -> "MigIntents":
        """Returns a copy with a GPU instance added.

        It replaces one at the same site under another name, which the device had before GPUs were
        renumbered.
        """
        others = {name: other for name, other in self.instances.items() if other != site}
        return replace(self, instances={**others, device: site})

    def without_instance(self, device: str) -> "MigIntents":
        """Returns a copy without the GPU instance of this device."""
        left = {name: site for name, site in self.instances.items() if name != device}
        return replace(self, instances=left)


def render_intents(intents: MigIntents, boot_id: str) -> bytes:
    """Returns the content of a GPU's file. Equal intents have equal content."""
    content = {
        "version": _VERSION,
        "bootID": boot_id,
        "gpu": intents.gpu,
        "pciBusID": intents.pci_bus_id,
        "mode": intents.mode,
        "timeSlice": intents.time_slice,
        "instances": [
            {
                "device": device,
                "profile": site.profile_id,
                "start": site.placement.start,
                "size": site.placement.size,
            }
            for device, site in sorted(intents.instances.items())
        ],
    }
    return json.dumps(content, separators=(",", ":")).encode() + b"\n"


def parse_intents(content: bytes, boot_id: str) -> MigIntents | None:
    """Reads the content of a GPU's file; None if it was recorded in another boot.

    Raises:
        MigIntentError: the content is damaged, or its version is not supported.
    """
    try:
        read: Mapping[str, Any] = json.loads(content)
        if read["version"] != _VERSION:
            raise MigIntentError(
                f"has version {read['version']!r}; only version {_VERSION} is supported"
            )
        instances = {str(made["device"]): _site(made) for made in read["instances"]}
        intents = MigIntents(
            str(read["gpu"]),
            str(read["pciBusID"]),
            read["mode"] is True,
            instances,
            read["timeSlice"] is True,
        )
        return intents if read["bootID"] == boot_id else None
    except KeyError as error:
        raise MigIntentError(f"has no field {error}") from error
    except (ValueError, TypeError, AttributeError, OverflowError, RecursionError) as error:
        raise MigIntentError(f"is damaged: {error}") from error


def _site(content: Mapping[str, Any]) -> MigSite:
    placement = MigPlacement(int(content["start"]), int(content["size"]))
    return MigSite(int(content["profile"]), placement)
