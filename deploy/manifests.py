"""Renders manifests from the chart with Helm: `python -m deploy.manifests`.

The files that kustomize reads have the chart's default values, under the names that the table below
gives them; `--check` only compares, and exits with 1 if one is stale. `--single FILE` writes all
objects into one file, for `kubectl apply -f`, with the image in `--image`.
"""

import argparse
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from simulation.kubernetes import build, releases

DEPLOY: Final = Path(__file__).resolve().parent
CHART: Final = DEPLOY / "chart"
RELEASE: Final = "carina"
NAMESPACE: Final = "carina-system"

_FILES: Final = {
    "admin-access-required.yaml": "policies/admin-access-required.yaml",
    "controller-permissions.yaml": "controller/permissions.yaml",
    "controller.yaml": "controller/deployment.yaml",
    "critical-pods-quota.yaml": "objects/critical-pods-quota.yaml",
    "device-configuration.yaml": "policies/device-configuration.yaml",
    "deviceclass.yaml": "objects/device-classes.yaml",
    "kubelet-plugin.yaml": "kubelet-plugin/daemonset.yaml",
    "network-policy.yaml": "objects/network-policy.yaml",
    "own-node-only.yaml": "policies/own-node-only.yaml",
    "permissions.yaml": "kubelet-plugin/permissions.yaml",
    "queue-gate.yaml": "policies/queue-gate.yaml",
    "queue-membership.yaml": "policies/queue-membership.yaml",
    "queue-namespaces.yaml": "policies/queue-namespaces.yaml",
    "user-permissions.yaml": "controller/user-permissions.yaml",
}
"""The template of each file of kustomize."""
_COMPONENTS: Final = {
    "exclusive=true": {
        "exclusive/no-shared-claims.yaml": "policies/exclusive/no-shared-claims.yaml",
        "exclusive/no-toleration.yaml": "policies/exclusive/no-toleration.yaml",
    },
    "sharing.enabled=true": {
        "sharing/daemonset.yaml": "sharing/daemonset.yaml",
        "sharing/permissions.yaml": "sharing/permissions.yaml",
    },
    "driverName=gpu.nvidia.com": {
        "nvidia-compatible/deviceclass.yaml": "objects/device-classes.yaml",
    },
}
"""The same of files that need a value."""
_SOURCE: Final = re.compile(r"^# Source: carina/templates/(\S+)\n", re.MULTILINE)


class RenderError(RuntimeError):
    """Helm refuses the chart or the values; the message is Helm's."""


def rendered(helm: Path, *values: str) -> dict[str, str]:
    """The manifests of each template, for values as `--set` takes them, without hooks.

    Raises:
        RenderError: Helm refuses them.
    """
    command: list[str | Path] = [
        helm,
        "template",
        RELEASE,
        CHART,
        "--namespace",
        NAMESPACE,
        "--no-hooks",
    ]
    flags = [flag for value in values for flag in ("--set", value)]
    done = subprocess.run([*command, *flags], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RenderError(done.stderr.strip())
    found: dict[str, list[str]] = {}
    for document in re.split(r"^---\n", done.stdout, flags=re.MULTILINE):
        if source := _SOURCE.match(document):
            found.setdefault(source[1], []).append(document[source.end() :].strip() + "\n")
    return {template: "---\n".join(documents) for template, documents in found.items()}


def kustomize_files(helm: Path) -> dict[Path, str]:
    """The files that kustomize reads, below `deploy`."""
    return {
        Path(name): text
        for values, files in ({(): _FILES} | {(k,): v for k, v in _COMPONENTS.items()}).items()
        for name, text in _named(files, rendered(helm, *values))
    }


def single_file(helm: Path, image: str | None = None) -> str:
    """All objects of an installation by `kubectl apply`, with the namespace."""
    values = ["crds.keep=false"]
    if image is not None:
        repository, tag = image.rsplit(":", 1)
        values += [f"image.repository={repository}", f"image.tag={tag}"]
    objects = rendered(helm, *values)
    first = [name for name in objects if name.startswith("crds/")]
    rest = [name for name in objects if not name.startswith("crds/")]
    texts = [objects[name] for name in first + rest]
    return "---\n".join([(DEPLOY / "namespace.yaml").read_text(), *texts])


def _named(files: Mapping[str, str], texts: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    for name, template in files.items():
        header = f"# Rendered by python -m deploy.manifests from chart/templates/{template}.\n"
        yield name, header + texts[template]


def main(arguments: Sequence[str] | None = None) -> None:
    """Writes or checks the files."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    parser.add_argument("--single", type=Path, metavar="FILE", help="write one file only")
    parser.add_argument("--image", metavar="NAME:TAG", help="the image in that file")
    chosen = parser.parse_args(arguments)
    build.build([releases.helm()])
    helm = releases.helm().program("helm")
    if chosen.single is not None:
        chosen.single.write_text(single_file(helm, chosen.image))
        return
    stale = []
    for name, text in kustomize_files(helm).items():
        file = DEPLOY / name
        if file.exists() and file.read_text() == text:
            continue
        if chosen.check:
            stale.append(str(name))
        else:
            file.write_text(text)
    if stale:
        sys.exit(f"{', '.join(stale)}: not as rendered; run python -m deploy.manifests")


if __name__ == "__main__":
    main()
