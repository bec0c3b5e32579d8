"""Creates container images as docker archives: busybox, and root folders. There is no registry.

An archive is a tar file with a layer, its configuration and a manifest.json (Docker image
specification v1.2), which every runtime can import.
"""

import hashlib
import io
import json
import platform
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path

BUSYBOX = "docker.io/local/busybox:1"
PAUSE = "docker.io/local/pause:1"
LIBRARY_BUSYBOX = "docker.io/library/busybox:1"  # the full name of `busybox:1` in examples

_FOLDERS = {"dev": 0o755, "etc": 0o755, "proc": 0o555, "root": 0o700, "sys": 0o555, "tmp": 0o1777}
_CREATED = "1980-01-01T00:00:00Z"
_ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}


def write_archive(path: Path, busybox: Path) -> Path:
    """Writes the images of a node: busybox under both names, and pause for sandboxes."""
    layer = _layer(busybox)
    shell = _config(layer, ["sh"])
    pause = _config(layer, ["sleep", "2147483647"])
    manifest = [
        _manifest(shell, layer, [BUSYBOX, LIBRARY_BUSYBOX]),
        _manifest(pause, layer, [PAUSE]),
    ]
    with tarfile.open(path, "w") as archive:
        _add_file(archive, _layer_name(layer), layer)
        for config in (shell, pause):
            _add_file(archive, _config_name(config), config)
        _add_file(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def write_root(path: Path, root: bytes, name: str) -> Path:
    """Writes an image that is a root file system, for others to be built on."""
    config = _config(root, ["/bin/sh"], path="/usr/sbin:/usr/bin:/sbin:/bin")
    with tarfile.open(path, "w") as archive:
        _add_file(archive, _layer_name(root), root)
        _add_file(archive, _config_name(config), config)
        manifest = [_manifest(config, root, [name])]
        _add_file(archive, "manifest.json", json.dumps(manifest).encode())
    return path


def _layer(busybox: Path) -> bytes:
    """Returns a root file system with busybox and links for its commands; deterministic."""
    applets = subprocess.run([busybox, "--list"], capture_output=True, text=True, check=True)
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as root:
        for name, mode in _FOLDERS.items():
            folder = tarfile.TarInfo(name)
            folder.type, folder.mode = tarfile.DIRTYPE, mode
            root.addfile(folder)
        _add_file(root, "etc/passwd", b"root:x:0:0:root:/root:/bin/sh\n")
        _add_file(root, "bin/busybox", busybox.read_bytes(), mode=0o755)
        for applet in sorted({*applets.stdout.split()} - {"busybox"}):
            link = tarfile.TarInfo(f"bin/{applet}")
            link.type, link.linkname = tarfile.SYMTYPE, "busybox"
            root.addfile(link)
    return buffer.getvalue()


def _config(layer: bytes, command: Sequence[str], path: str = "/bin") -> bytes:
    config = {
        "architecture": _ARCHITECTURES[platform.machine()],
        "os": "linux",
        "config": {"Cmd": list(command), "Env": [f"PATH={path}"]},
        "rootfs": {"type": "layers", "diff_ids": [f"sha256:{hashlib.sha256(layer).hexdigest()}"]},
        "history": [{"created": _CREATED, "created_by": "simulation"}],  # one entry a layer
    }
    return json.dumps(config).encode()


def _manifest(config: bytes, layer: bytes, names: Sequence[str]) -> dict[str, object]:
    return {
        "Config": _config_name(config),
        "RepoTags": list(names),
        "Layers": [_layer_name(layer)],
    }


def _config_name(config: bytes) -> str:
    return f"{hashlib.sha256(config).hexdigest()}.json"


def _layer_name(layer: bytes) -> str:
    return f"{hashlib.sha256(layer).hexdigest()}.tar"


def _add_file(archive: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    entry = tarfile.TarInfo(name)
    entry.size, entry.mode = len(content), mode
    archive.addfile(entry, io.BytesIO(content))
