"""A CDI specification: what a container runtime does to a container that is given a device.

The document of the Container Device Interface, as far as this driver writes it: pure values whose
constructors hold the format's rules, and `render`, which writes them the same way every time.
Paths named `host_path` are those that the container runtime sees, not this process.

Rules: SPEC.md of the Container Device Interface, 1.1.0.
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
"""When a hook runs, in the words of the OCI runtime specification."""


class CdiSpecError(ValueError):
    """A value that no container runtime would accept: names it and what is allowed."""


@dataclass(frozen=True, slots=True)
class DeviceNode:
    """A device node that the container gets, with the numbers of the host's node."""

    path: str
    """Where it is in the container."""
    host_path: str
    permissions: str = "rw"
    """Of the device cgroup. No `m`: the runtime makes the node, the container need not."""

    def __post_init__(self) -> None:
        _absolute("path of a device node", self.path)
        _absolute("hostPath of a device node", self.host_path)
        if not self.permissions or not _PERMISSIONS.fullmatch(self.permissions):
            raise CdiSpecError(
                f"permissions {self.permissions!r} of device node {self.path}: "
                "some of r, w and m, in this order"
            )


@dataclass(frozen=True, slots=True)
class Mount:
    """A file or folder of the host, bind-mounted into the container for reading."""

    host_path: str
    container_path: str
    options: tuple[str, ...] = ("ro", "nosuid", "nodev", "rbind", "rprivate")

    def __post_init__(self) -> None:
        _absolute("hostPath of a mount", self.host_path)
        _absolute("containerPath of a mount", self.container_path)


@dataclass(frozen=True, slots=True)
class Hook:
    """A program of the host that the runtime runs while it makes the container."""

    name: HookName
    path: str
    arguments: tuple[str, ...]
    """The first one is the program's own name, as execve has it."""

    def __post_init__(self) -> None:
        _absolute("path of a hook", self.path)


@dataclass(frozen=True, slots=True)
class ContainerEdits:
    """What is added to a container."""

    env: tuple[str, ...] = ()
    """`NAME=value` each."""
    device_nodes: tuple[DeviceNode, ...] = ()
    mounts: tuple[Mount, ...] = ()
    hooks: tuple[Hook, ...] = ()

    def __post_init__(self) -> None:
        for variable in self.env:
            if not _VARIABLE.fullmatch(variable):
                raise CdiSpecError(f"environment {variable!r}: NAME=value, NAME of [A-Za-z0-9_]")
        _unique("environment variable", (v.partition("=")[0] for v in self.env))
        _unique("device node", (node.path for node in self.device_nodes))
        _unique("mount", (mount.container_path for mount in self.mounts))

    @property
    def empty(self) -> bool:
        """Whether nothing is added."""
        return not (self.env or self.device_nodes or self.mounts or self.hooks)


@dataclass(frozen=True, slots=True)
class CdiDevice:
    """A device of a specification: what it is called there, and what it adds."""

    name: str
    edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _DEVICE_NAME.fullmatch(self.name):
            raise CdiSpecError(
                f"CDI device name {self.name!r}: letters, digits and _.:- between letters or digits"
            )
        if self.edits.empty:
            raise CdiSpecError(f"CDI device {self.name} adds nothing to a container")


@dataclass(frozen=True, slots=True)
class CdiSpec:
    """A specification file: its devices, and what any of them adds, once, beside its own."""

    kind: str
    """`vendor/class`."""
    devices: tuple[CdiDevice, ...]
    edits: ContainerEdits

    def __post_init__(self) -> None:
        if not _KIND.fullmatch(self.kind):
            raise CdiSpecError(
                f"CDI kind {self.kind!r}: vendor/class, each of letters, digits and _.-, beginning "
                "with a letter, ending with a letter or digit, the class at most 63 long"
            )
        if not self.devices:
            raise CdiSpecError(f"a CDI spec of {self.kind} has no device")
        _unique("CDI device", (device.name for device in self.devices))

    @property
    def version(self) -> str:
        """The oldest version that has all of it: older runtimes refuse newer ones."""
        vendor_class = self.kind.partition("/")[2]
        # hostPath of a device node needs 0.5.0, which is as far back as runtimes matter.
        return "0.6.0" if "." in vendor_class else "0.5.0"


def render(spec: CdiSpec) -> bytes:
    """Gives the file's content, JSON: the same for the same specification."""
    document = {
        "cdiVersion": spec.version,
        "kind": spec.kind,
        "devices": [
            {"name": device.name, "containerEdits": _edits(device.edits)} for device in spec.devices
        ],
        "containerEdits": _edits(spec.edits),
    }
    # On one line: with an indent it is Python that encodes, which is 20 times slower.
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
        raise CdiSpecError(f"{what} is {path!r}: it must be absolute")


def _unique(what: str, names: Iterable[str]) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise CdiSpecError(f"{what} {name} is there twice")
        seen.add(name)
