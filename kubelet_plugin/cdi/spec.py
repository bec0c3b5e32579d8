"""CDI specs: how a container runtime changes a container that gets a device.

The part of the Container Device Interface that this driver uses, as values. The constructors check
the rules of the format (SPEC.md, 1.1.0), and `render_spec` writes a spec deterministically. A
`host_path` is a path in the file system of the container runtime, not of this process.
"""

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

_KIND = re.compile(r"[A-Za-z]([\w.-]*[A-Za-z0-9])?/[A-Za-z]([\w.-]{0,61}[A-Za-z0-9])?", re.ASCII)
_DEVICE_NAME = re.compile(r"[A-Za-z0-9]([\w.:-]*[A-Za-z0-9])?", re.ASCII)
_VARIABLE = re.compile(r"[A-Za-z_]\w*=[^\0]*", re.ASCII)
_PERMISSIONS = re.compile(r"r?w?m?")

HookName: TypeAlias = Literal[
    "prestart", "createRuntime", "createContainer", "startContainer", "poststart", "poststop"
]
"""When a hook runs, as in the OCI runtime specification."""


class CdiSpecError(ValueError):
    """A value is not valid in a CDI spec; names the value and the rule."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node that is added to the container, with the numbers of the host's node."""

    path: str
    """Path in the container."""
    host_path: str
    permissions: str = "rw"
    """Permissions of the device cgroup. The runtime creates the node, so `m` is not needed."""

    def __post_init__(self) -> None:
        _absolute("path of a device node", self.path)
        _absolute("hostPath of a device node", self.host_path)
        if not self.permissions or not _PERMISSIONS.fullmatch(self.permissions):
            raise CdiSpecError(
                f"permissions {self.permissions!r} of device node {self.path} must be one or more "
                "of r, w and m, in this order"
            )


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host that is mounted into the container, by default read-only."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")

    def __post_init__(self) -> None:
        _absolute("hostPath of a mount", self.host_path)
        _absolute("containerPath of a mount", self.container_path)


@dataclass(frozen=True, slots=True)
class Hook:
    """A program on the host that the runtime runs while it creates the container."""

    name: HookName
    path: str
    arguments: tuple[str, ...]
    """Arguments for execve; the first one is the program's name."""

    def __post_init__(self) -> None:
        _absolute("path of a hook", self.path)


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """What is added to a container."""

    env: tuple[str, ...] = ()
    """Variables as `NAME=value`."""
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def __post_init__(self) -> None:
        for variable in self.env:
            if not _VARIABLE.fullmatch(variable):
                raise CdiSpecError(
                    f"environment variable {variable!r} must be NAME=value, with a NAME of "
                    "[A-Za-z0-9_]"
                )
        _unique("environment variable", (v.partition("=")[0] for v in self.env))
        _unique("device node", (node.path for node in self.device_nodes))
        _unique("mount", (mount.container_path for mount in self.mounts))

    @property
    def empty(self) -> bool:
        """Whether nothing is added."""
        return not (self.env or self.device_nodes or self.mounts or self.hooks)


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device of a spec: its name, and what it adds to a container."""

    name: str
    edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _DEVICE_NAME.fullmatch(self.name):
            raise CdiSpecError(
                f"CDI device name {self.name!r} must consist of letters, digits, '_', '.', ':' and "
                "'-', and begin and end with a letter or digit"
            )
        if self.edits.empty:
            raise CdiSpecError(f"CDI device {self.name} adds nothing to a container")


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """A spec file: its devices, and the edits that a container with any of them gets once."""

    kind: str
    """`vendor/class`."""
    devices: tuple[CdiDevice, ...]
    edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise CdiSpecError(
                f"CDI kind {self.kind!r} must be vendor/class; both consist of letters, digits, "
                "'_', '.' and '-', begin with a letter and end with a letter or digit, and the "
                "class has at most 63 characters"
            )
        if not self.devices:
            raise CdiSpecError(f"a CDI spec of {self.kind} has no device")
        _unique("CDI device", (device.name for device in self.devices))

    @property
    def version(self) -> str:
        """The oldest version with all features of this spec, because old runtimes reject others."""
        vendor_class = self.kind.partition("/")[2]
        # hostPath of a device node needs 0.5.0, which all supported runtimes accept.
        return "0.6.0" if "." in vendor_class else "0.5.0"


def render_spec(spec: CdiSpec) -> bytes:
    """Returns the content of the file in JSON. Equal specs have equal content."""
    document = {
        "cdiVersion": spec.version,
        "kind": spec.kind,
        "devices": [
            {"name": device.name, "containerEdits": _edits(device.edits)} for device in spec.devices
        ],
        "containerEdits": _edits(spec.edits),
    }
    # On one line, since with an indent, json uses its Python encoder, which is 20 times slower.
    return json.dumps(document).encode() + b"\n"


def _edits(edits: ContainerEdits) -> dict[str, object]:
    fields: dict[str, object] = {
        "env": list(edits.env),
        "deviceNodes": [
            {"path": node.path, "hostPath": node.host_path, "permissions": node.permissions}
            for node in edits.device_nodes
        ],
        "mounts": [
            {
                "hostPath": mount.host_path,
                "containerPath": mount.container_path,
                "options": list(mount.options),
            }
            for mount in edits.mounts
        ],
        "hooks": [
            {"hookName": hook.name, "path": hook.path, "args": list(hook.arguments)}
            for hook in edits.hooks
        ],
    }
    return {name: value for name, value in fields.items() if value}


def _absolute(what: str, path: str) -> None:
    if not path.startswith("/") or "\0" in path:
        raise CdiSpecError(f"{what} is {path!r}; it must be an absolute path")


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CdiSpecError(f"{what} {name} occurs twice")
        seen.add(name)
