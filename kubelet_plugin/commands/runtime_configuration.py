"""Where a node's container runtime looks for CDI specs, from its configuration files.

containerd: `enable_cdi` and `cdi_spec_dirs` of the CRI plugin, in the file and those that it
imports; CDI is off by default in the configuration versions 1 and 2 before containerd 2.0. CRI-O:
`cdi_spec_dirs` of `[crio.runtime]`, in the file and its drop-ins, of which the last counts.
"""

import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kubelet_plugin.host import HostPaths

DEFAULT_FOLDERS: Final = ("/etc/cdi", "/var/run/cdi")
"""Of both runtimes, and of the CDI specification."""
_CONTAINERD: Final = (
    "/etc/containerd/config.toml",
    "/var/lib/rancher/k3s/agent/etc/containerd/config.toml",
    "/var/lib/rancher/rke2/agent/etc/containerd/config.toml",
)
_CRIO: Final = "/etc/crio/crio.conf"
_CRIO_DROP_INS: Final = "/etc/crio/crio.conf.d"
_CRI_PLUGINS: Final = ("io.containerd.cri.v1.runtime", "io.containerd.grpc.v1.cri", "cri")
_ALWAYS_ON: Final = 3
"""The version of containerd's configuration from which on CDI is on by default."""


@dataclass(frozen=True, slots=True)
class RuntimeConfiguration:
    """What a runtime's files say."""

    runtime: str
    file: str
    enabled: bool | None
    """Whether CDI is on; None if the files do not say it, and it depends on the version."""
    folders: tuple[str, ...]


class UnreadableConfigurationError(Exception):
    """A file cannot be read; the message names it."""


def configurations(host: HostPaths) -> Iterator[RuntimeConfiguration]:
    """Yields the configuration of each runtime that has one.

    Raises:
        UnreadableConfigurationError: a file cannot be read, or is not TOML.
    """
    for path in _CONTAINERD:
        if (content := _read(host, path)) is not None:
            yield containerd(path, [content, *_imported(host, content)])
    drop_ins = sorted(_names(host.path(_CRIO_DROP_INS)))
    files = [_CRIO, *(f"{_CRIO_DROP_INS}/{name}" for name in drop_ins)]
    contents = [content for path in files if (content := _read(host, path)) is not None]
    if contents:
        yield crio(_CRIO, contents)


def containerd(path: str, contents: list[Mapping[str, Any]]) -> RuntimeConfiguration:
    """Returns what the files of containerd say, of which later ones count more."""
    enabled, folders = None, DEFAULT_FOLDERS
    for content in contents:
        plugins = content.get("plugins") or {}
        for name in _CRI_PLUGINS:
            plugin = plugins.get(name) or {}
            enabled = plugin.get("enable_cdi", enabled)
            folders = tuple(plugin.get("cdi_spec_dirs", folders))
    if enabled is None and contents[0].get("version", 1) >= _ALWAYS_ON:
        enabled = True
    return RuntimeConfiguration("containerd", path, enabled, folders)


def crio(path: str, contents: list[Mapping[str, Any]]) -> RuntimeConfiguration:
    """Returns what the files of CRI-O say, of which later ones count more."""
    folders = DEFAULT_FOLDERS
    for content in contents:
        runtime = (content.get("crio") or {}).get("runtime") or {}
        folders = tuple(runtime.get("cdi_spec_dirs", folders))
    return RuntimeConfiguration("CRI-O", path, enabled=True, folders=folders)


def _imported(host: HostPaths, content: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    for pattern in content.get("imports") or ():
        folder, _, name = str(pattern).rpartition("/")
        for found in sorted(host.path(folder).glob(name)):
            imported = _read(host, f"{folder}/{found.name}")
            if imported is not None:
                yield imported


def _names(folder: Path) -> list[str]:
    try:
        return [entry.name for entry in folder.iterdir() if entry.suffix == ".conf"]
    except OSError:
        return []


def _read(host: HostPaths, path: str) -> Mapping[str, Any] | None:
    try:
        return tomllib.loads(host.path(path).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise UnreadableConfigurationError(f"{path} cannot be read: {error}") from error
