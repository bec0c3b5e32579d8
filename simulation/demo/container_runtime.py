"""In the role of a container runtime: what the CDI devices give to a container.

Device names are looked up in the spec files, and edits are those of the files and of the devices
together (https://github.com/cncf-tags/container-device-interface, SPEC.md). No container is made.
"""

import json
import stat
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from simulation.demo.console import DemoError


@dataclass(frozen=True, slots=True)
class ContainerView:
    """What a container would have."""

    device_nodes: tuple[str, ...]
    """Paths in the container; each is a character device on the host."""
    environment: dict[str, str]
    mounts: int


def specs(directory: Path) -> list[Path]:
    """The spec files that a runtime reads."""
    return sorted(directory.glob("*.json"))


def inject(directory: Path, cdi_ids: Iterable[str]) -> ContainerView:
    """What a container with these CDI devices has.

    Raises:
        DemoError: a device is in no spec, or one of its files is not on the host.
    """
    edits = [edit for name in cdi_ids for edit in _edits(directory, name)]
    nodes: dict[str, Path] = {}
    environment: dict[str, str] = {}
    mounts: dict[str, Path] = {}
    for edit in edits:
        for node in edit.get("deviceNodes", ()):
            nodes[node["path"]] = Path(node.get("hostPath", node["path"]))
        for mount in edit.get("mounts", ()):
            mounts[mount["containerPath"]] = Path(mount["hostPath"])
        environment.update(variable.split("=", 1) for variable in edit.get("env", ()))
    for path in nodes.values():
        if not (path.exists() and stat.S_ISCHR(path.stat().st_mode)):
            raise DemoError(f"{path} is not a character device")
    for path in mounts.values():
        if not path.exists():
            raise DemoError(f"{path} does not exist, and is to be mounted")
    return ContainerView(tuple(sorted(nodes)), environment, len(mounts))


def _edits(directory: Path, cdi_id: str) -> list[dict[str, Any]]:
    kind, _, name = cdi_id.partition("=")
    for path in specs(directory):
        spec = json.loads(path.read_text())
        if spec["kind"] != kind:
            continue
        for device in spec["devices"]:
            if device["name"] == name:
                return [spec.get("containerEdits", {}), device["containerEdits"]]
    raise DemoError(f"no CDI spec in {directory} has the device {cdi_id}")
