"""The manifest by which krew finds, checks and installs the kubectl plugin.

The fields are those of krew's own documentation (krew.googlecontainertools.github.com/v1alpha2).
A pull request to an index of krew has it, and `kubectl krew install --manifest=FILE` takes it.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from carina_dra.cli.command import KUBECTL_PLUGIN
from release.kubectl_plugin import COMPLETION
from release.wheels import Platform

NAME: Final = KUBECTL_PLUGIN.removeprefix("kubectl-")

_DESCRIPTION = """\
Shows what the queues of a cluster with Carina have, may have and wait for, which GPUs are free, and
why a group of pods waits, with what would help. Stops and resumes queues, and simulates what would
happen. It asks the API server with the rights of your kubeconfig, and needs no other service.
"""
_CAVEATS = f"""\
The plugin needs Python 3.11, 3.12 or 3.13 in the PATH, and unpacks itself below ~/.cache/pex at the
first start.
It reads the objects of Carina, which an administrator installs in the cluster.
To complete command lines, put {COMPLETION}, which is beside the plugin in
$KREW_ROOT/store/{NAME}, into your PATH.
"""


def manifest(version: str, download_folder: str, archives: Mapping[Platform, Path]) -> str:
    """The manifest, as YAML.

    download_folder: the URL below which the archives are.
    """
    return yaml.safe_dump(
        {
            "apiVersion": "krew.googlecontainertools.github.com/v1alpha2",
            "kind": "Plugin",
            "metadata": {"name": NAME},
            "spec": {
                "version": f"v{version}",
                "shortDescription": "Show GPU queues, free GPUs and why pods wait",
                "description": _DESCRIPTION,
                "caveats": _CAVEATS,
                "platforms": [
                    _platform(platform, f"{download_folder}/{archive.name}", archive)
                    for platform, archive in archives.items()
                ],
            },
        },
        sort_keys=False,
    )


def _platform(platform: Platform, url: str, archive: Path) -> dict[str, Any]:
    return {
        "selector": {"matchLabels": {"os": platform.os, "arch": platform.architecture}},
        "uri": url,
        "sha256": hashlib.sha256(archive.read_bytes()).hexdigest(),
        "bin": KUBECTL_PLUGIN,
    }
