"""Finds the programs of a cluster, and says why they are missing.

A control plane is taken from $KUBEBUILDER_ASSETS if this is set, and otherwise from the binaries
built from the pinned releases. A node always uses built binaries.
"""

import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from simulation.kubernetes import debian, releases
from simulation.kubernetes.releases import Release


class BinariesMissingError(RuntimeError):
    """A cluster cannot be started on this machine; the message names the remedy."""


@dataclass(frozen=True, slots=True)
class ControllerBinaries:
    """The controllers and the scheduler."""

    kube_controller_manager: Path
    kube_scheduler: Path


@dataclass(frozen=True, slots=True)
class ControlPlaneBinaries:
    """The programs of a control plane.

    `controllers` is None for assets with only etcd and an API server, such as envtest's.
    """

    etcd: Path
    kube_apiserver: Path
    kubectl: Path
    controllers: ControllerBinaries | None


@dataclass(frozen=True, slots=True)
class NodeBinaries:
    """The programs of a node."""

    kubelet: Path
    containerd: Path
    ctr: Path
    runc: Path
    cni_folder: Path
    busybox: Path


def control_plane() -> ControlPlaneBinaries:
    """Returns the programs of a control plane.

    Raises:
        BinariesMissingError: a program is missing.
    """
    assets = _assets()
    if assets is not None:
        return _from_assets(assets)
    etcd, kubernetes = _built(releases.etcd()), _built(releases.kubernetes())
    return ControlPlaneBinaries(
        etcd=etcd.program("etcd"),
        kube_apiserver=kubernetes.program("kube-apiserver"),
        kubectl=kubernetes.program("kubectl"),
        controllers=ControllerBinaries(
            kube_controller_manager=kubernetes.program("kube-controller-manager"),
            kube_scheduler=kubernetes.program("kube-scheduler"),
        ),
    )


def node() -> NodeBinaries:
    """Returns the programs of a node.

    Raises:
        BinariesMissingError: a program is missing.
    """
    containerd = _built(releases.containerd())
    runc, cni_folder, busybox = debian.runc(), debian.cni_folder(), debian.busybox()
    if runc is None or cni_folder is None or busybox is None:
        raise BinariesMissingError(
            f"missing from the distribution: {', '.join(debian.missing_packages())}; "
            "`python -m simulation.kubernetes.build` as root installs them"
        )
    return NodeBinaries(
        kubelet=_built(releases.kubernetes()).program("kubelet"),
        containerd=containerd.program("containerd"),
        ctr=containerd.program("ctr"),
        runc=runc,
        cni_folder=cni_folder,
        busybox=busybox,
    )


def nvidia_cdi_hook() -> Path:
    """Returns the path of NVIDIA's CDI hook.

    Raises:
        BinariesMissingError: the hook is not built.
    """
    return _built(releases.nvidia_container_toolkit()).program("nvidia-cdi-hook")


def helm() -> Path:
    """Returns the path of Helm.

    Raises:
        BinariesMissingError: Helm is not built.
    """
    return _built(releases.helm()).program("helm")


def control_plane_releases() -> tuple[Release, ...]:
    """Returns the releases that a control plane needs."""
    return () if _assets() is not None else (releases.etcd(), releases.kubernetes())


def node_releases() -> tuple[Release, ...]:
    """Returns the releases that a node needs, in addition to its control plane."""
    return (releases.containerd(), releases.nvidia_container_toolkit())


def why_no_control_plane() -> str | None:
    """Returns why no control plane can run on this machine, or None."""
    if shutil.which("openssl") is None:
        return "a real Kubernetes needs the openssl command for its certificates"
    assets = _assets()
    if assets is not None:
        try:
            _from_assets(assets)
        except BinariesMissingError as error:
            return str(error)
        return None
    return _why_not_built(control_plane_releases())


def why_no_node() -> str | None:
    """Returns why no node can run on this machine, or None."""
    if _assets() is not None:
        return "KUBEBUILDER_ASSETS is set, but has only a control plane; unset it to run a node"
    if sys.platform != "linux" or os.geteuid() != 0:
        return "a node that runs containers needs Linux and root"
    packages = debian.missing_packages()
    if packages and shutil.which("apt-get") is None:
        return f"a node needs the distribution's packages {', '.join(packages)}"
    return why_no_control_plane() or _why_not_built(node_releases())


def why_no_helm() -> str | None:
    """Returns why Helm cannot run on this machine, or None."""
    return _why_not_built((releases.helm(),))


def _why_not_built(wanted: tuple[Release, ...]) -> str | None:
    missing = [f"{release.project} {release.version}" for release in wanted if not release.is_built]
    if not missing or shutil.which("go") is not None:
        return None
    return f"{', '.join(missing)} must be built; install Go, or set KUBEBUILDER_ASSETS"


def _assets() -> Path | None:
    configured = os.environ.get("KUBEBUILDER_ASSETS")
    return Path(configured) if configured else None


def _from_assets(assets: Path) -> ControlPlaneBinaries:
    missing = [
        name for name in ("etcd", "kube-apiserver", "kubectl") if not (assets / name).exists()
    ]
    if missing:
        raise BinariesMissingError(f"KUBEBUILDER_ASSETS={assets} has no {', '.join(missing)}")
    controllers = ControllerBinaries(
        kube_controller_manager=assets / "kube-controller-manager",
        kube_scheduler=assets / "kube-scheduler",
    )
    complete = controllers.kube_controller_manager.exists() and controllers.kube_scheduler.exists()
    return ControlPlaneBinaries(
        etcd=assets / "etcd",
        kube_apiserver=assets / "kube-apiserver",
        kubectl=assets / "kubectl",
        controllers=controllers if complete else None,
    )


def _built(release: Release) -> Release:
    if not release.is_built:
        raise BinariesMissingError(
            f"{release.project} {release.version} is not in {release.home}: "
            "`python -m simulation.kubernetes.build` builds it"
        )
    return release
