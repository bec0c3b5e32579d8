"""Stands in for a container runtime: what CDI devices add to a container.

Devices are found by name in the spec files. A container gets the edits of the file and those of the
device (https://github.com/cncf-tags/container-device-interface, SPEC.md). No container is
started.
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
    """What a container would be started with."""

    device_nodes: tuple[str, ...]
    """Paths in the container; all are character devices on the host."""
    environment: dict[str, str]
    mounts: int


def specs(directory: Path) -> list[Path]:
    """The spec files that a runtime reads."""
    return sorted(directory.glob("*.json"))


def inject(directory: Path, cdi_ids: Iterable[str]) -> ContainerView:
    """The view of a container with these CDI devices.

    Raises:
        DemoError: no spec has the device, or one of its files does not exist on the host.
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
            raise DemoError(f"{path} does not exist and cannot be mounted")
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
