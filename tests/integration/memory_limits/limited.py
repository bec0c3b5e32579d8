"""A node whose driver limits the memory of cgroups, and pods on it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from carina_dra.kube.errors import ApiOperation, Unreachable
from kubelet_plugin.claims.claim import ClaimReference
from tests.integration.mig.agreement import TwoGpus

GIB = 2**30
SHARE = "gpu-0-share"
DRIVER = "615.71.01"
"""The first branch with limits."""
POD, OTHER = "11111111-1111-4111-8111-111111111111", "22222222-2222-4222-8222-222222222222"
DEMANDS_KERNEL = {"kind": "ShareConfig", "enforcement": {"memory": "kernel"}}


@dataclass
class Limited(TwoGpus):
    """A node whose driver limits the memory of cgroups, with pods of the class Burstable."""

    api_away: bool = False
    """Whether the API server does not respond, so that claims are prepared from their record."""

    def start_pod(self, uid: str) -> Path:
        """Makes the cgroup of a pod, as the kubelet does first."""
        cgroup = self._cgroup(uid)
        cgroup.mkdir(parents=True)
        return cgroup

    def end_pod(self, uid: str) -> None:
        """Removes the cgroup of a pod."""
        self._cgroup(uid).rmdir()

    def reserve(self, claim: str, *pods: str, devices: tuple[str, ...] = (SHARE,)) -> None:
        """Has a claim allocated and reserved for pods."""
        self.allocations[claim], self.pods[claim] = devices, pods

    def limits(self, minor: int = 0) -> dict[str, int]:
        """The limits of pods by UID, in bytes."""
        found = self.simulated.memory_limits(minor)
        return {Path(path).name.removeprefix("pod"): limit for path, limit in found.items()}

    def records(self) -> set[str]:
        """The names of the files that record limits."""
        return {file.name for file in (self.folder / "memory-limits").glob("*")}

    def level(self, claim: str) -> str:
        """What the claim's containers are told."""
        (variable,) = [v for v in _variables(self.spec(claim)) if "_MEMORY_ENFORCEMENT=" in v]
        return variable.partition("=")[2]

    def _read_claim(self, claim: ClaimReference, patience: float) -> Mapping[str, Any]:
        if self.api_away:
            raise Unreachable(ApiOperation("get", "resourceclaims"), "no response")
        return super()._read_claim(claim, patience)

    def _cgroup(self, uid: str) -> Path:
        return self.cgroup_root / f"kubepods/burstable/pod{uid}"


def _variables(spec: Any) -> list[str]:
    return [v for device in spec["devices"] for v in device["containerEdits"]["env"]]
