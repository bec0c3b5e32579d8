"""The upstream releases that tests use, and the folders of their binaries.

Versions are set only in the go.mod files below `modules/`. Binaries are kept by version outside the
working tree, so that all checkouts share them.
"""

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

_MODULES = Path(__file__).parent / "modules"
_DEFAULT_KUBERNETES = "1.37"


@dataclass(frozen=True, slots=True)
class Release:
    """A release of an upstream project, and the programs that are built from it.

    `folder` contains the go.mod that pins it; `packages` maps programs to Go packages.
    """

    project: str
    version: str
    folder: Path
    packages: Mapping[str, str]
    cgo: bool = False
    ldflags: str = "-s -w"

    @property
    def home(self) -> Path:
        """The folder of this release in the cache."""
        return cache() / self.project / self.version

    def program(self, name: str) -> Path:
        """The path of a program, whether it is built or not."""
        if name not in self.packages:
            raise KeyError(f"{self.project} has no program {name!r}: {sorted(self.packages)}")
        return self.home / "bin" / name

    @property
    def is_built(self) -> bool:
        """Whether the programs are built. Their folder is created atomically."""
        return (self.home / "bin").is_dir()


def cache() -> Path:
    """Returns the folder of all binaries: $CARINA_CACHE, or ~/.cache/carina."""
    configured = os.environ.get("CARINA_CACHE")
    return Path(configured) if configured else Path.home() / ".cache" / "carina"


def kubernetes() -> Release:
    """Returns the Kubernetes release with the minor version in $KUBERNETES ("1.36").

    Raises:
        ValueError: no module pins this version.
    """
    minor = os.environ.get("KUBERNETES") or _DEFAULT_KUBERNETES
    folder = _MODULES / f"kubernetes-{minor}"
    if not folder.is_dir():
        pinned = sorted(path.name.removeprefix("kubernetes-") for path in _MODULES.glob("kuber*"))
        raise ValueError(f"KUBERNETES={minor} is not pinned below {_MODULES}; use one of {pinned}")
    version = _pinned(folder, "k8s.io/kubernetes")
    major, minor = version.split(".")[:2]
    # Without its version, a component uses the feature gate defaults of another release.
    stamp = {"gitVersion": f"v{version}", "gitMajor": major, "gitMinor": minor}
    programs = (
        "kubectl",
        "kube-apiserver",
        "kube-controller-manager",
        "kube-scheduler",
        "kubelet",
    )
    return Release(
        project="kubernetes",
        version=version,
        folder=folder,
        packages={program: f"k8s.io/kubernetes/cmd/{program}" for program in programs},
        ldflags=" ".join(
            ["-s -w", *(f"-X k8s.io/component-base/version.{k}={v}" for k, v in stamp.items())]
        ),
    )


def etcd() -> Release:
    """Returns the release of etcd, the API server's store."""
    folder = _MODULES / "etcd"
    package = "go.etcd.io/etcd/server/v3"
    return Release("etcd", _pinned(folder, package), folder, {"etcd": package})


def containerd() -> Release:
    """Returns the release of containerd, with its shim for runc and its command line."""
    folder = _MODULES / "containerd"
    module = "github.com/containerd/containerd/v2"
    programs = ("containerd", "containerd-shim-runc-v2", "ctr")
    return Release(
        project="containerd",
        version=_pinned(folder, module),
        folder=folder,
        packages={program: f"{module}/cmd/{program}" for program in programs},
    )


def nvidia_container_toolkit() -> Release:
    """Returns the release of NVIDIA's CDI hook. It loads NVML lazily, so it builds without it."""
    folder = _MODULES / "nvidia-container-toolkit"
    module = "github.com/NVIDIA/nvidia-container-toolkit"
    return Release(
        project="nvidia-container-toolkit",
        version=_pinned(folder, module),
        folder=folder,
        packages={"nvidia-cdi-hook": f"{module}/cmd/nvidia-cdi-hook"},
        cgo=True,
        ldflags="-s -w -extldflags=-Wl,-z,lazy",
    )


def helm() -> Release:
    """Returns the release of Helm, which renders and installs deploy/chart."""
    folder = _MODULES / "helm"
    module = "helm.sh/helm/v4"
    version = _pinned(folder, module)
    return Release(
        project="helm",
        version=version,
        folder=folder,
        packages={"helm": f"{module}/cmd/helm"},
        ldflags=f"-s -w -X {module}/internal/version.version=v{version}",
    )


def krew() -> Release:
    """Returns the release of krew, which installs plugins of kubectl."""
    folder = _MODULES / "krew"
    module = "sigs.k8s.io/krew"
    return Release("krew", _pinned(folder, module), folder, {"krew": f"{module}/cmd/krew"})


def _pinned(folder: Path, module: str) -> str:
    go_mod = (folder / "go.mod").read_text()
    match = re.search(rf"^\s*(?:require )?{re.escape(module)} v(\S+)", go_mod, re.MULTILINE)
    if match is None:
        raise ValueError(f"{folder / 'go.mod'} does not require {module}")
    return match.group(1)
