"""What a repair found otherwise than a prepared claim needs it, and made as it has to be.

Something else on the node has changed it since it was made: an administrator, a cleaner of files, a
reload of the driver. The length of time slices is not among it, because it cannot be read back.
"""

from collections.abc import Collection
from dataclasses import dataclass
from typing import ClassVar, TypeAlias


@dataclass(frozen=True, slots=True)
class CdiSpecDrift:
    """The CDI spec was missing, or had other content."""

    kind: ClassVar[str] = "cdi-spec"
    file: str
    missing: bool

    def __str__(self) -> str:
        return f"CDI spec {self.file} {'was missing' if self.missing else 'had other content'}"


@dataclass(frozen=True, slots=True)
class MetadataDrift:
    """A file with device metadata was missing, or had other content."""

    kind: ClassVar[str] = "device-metadata"
    file: str

    def __str__(self) -> str:
        return f"the device metadata {self.file} were missing or had other content"


@dataclass(frozen=True, slots=True)
class DeviceNodeDrift:
    """A device node was missing, or had other numbers, mode or owner."""

    kind: ClassVar[str] = "device-node"
    path: str
    found: str
    """What was there instead: "missing", or its numbers, mode and owner."""

    def __str__(self) -> str:
        return f"device node {self.path} was {self.found}"


@dataclass(frozen=True, slots=True)
class MigModeDrift:
    """MIG mode was off on a GPU that has partitions for claims."""

    kind: ClassVar[str] = "mig-mode"
    gpu: str
    """The UUID."""

    def __str__(self) -> str:
        return f"MIG mode of {self.gpu} was off"


@dataclass(frozen=True, slots=True)
class MigInstanceDrift:
    """A MIG instance was missing, or lacked its compute instance. What used it has failed."""

    kind: ClassVar[str] = "mig-instance"
    device: str

    def __str__(self) -> str:
        return (
            f"the MIG instance of {self.device} was missing or incomplete; containers that used "
            "it have to start again"
        )


@dataclass(frozen=True, slots=True)
class MemoryLimitDrift:
    """The limit of a pod's memory on a GPU was another one."""

    kind: ClassVar[str] = "memory-limit"
    pod: str
    """The UID."""
    gpu: str
    """The UUID."""
    found: int | None
    """Bytes; None for no limit."""
    wanted: int | None

    def __str__(self) -> str:
        return (
            f"the memory of pod {self.pod} on {self.gpu} had {_limit(self.found)} and not "
            f"{_limit(self.wanted)}"
        )


@dataclass(frozen=True, slots=True)
class LimitedPodGone:
    """The pod whose memory was limited has ended, so that the CDI spec says no limit any more."""

    pod: str
    """The UID."""


@dataclass(frozen=True, slots=True)
class LimitedPodsChanged:
    """Other pods use the claim than before, so that the CDI spec may say another limit."""

    pods: tuple[str, ...]
    """UIDs."""


def _limit(limit: int | None) -> str:
    return "no limit" if limit is None else f"a limit of {limit} bytes"


Drift: TypeAlias = (
    CdiSpecDrift
    | MetadataDrift
    | DeviceNodeDrift
    | MigModeDrift
    | MigInstanceDrift
    | MemoryLimitDrift
)
PodChange: TypeAlias = LimitedPodGone | LimitedPodsChanged
"""What is nobody's mistake, and changes what the CDI spec has to say."""
DriftNote: TypeAlias = Drift | PodChange
"""What a repair found: drifts, and what explains some."""


def causes(found: Collection[DriftNote]) -> tuple[Drift, ...]:
    """Returns the drifts without those that follow from something else that was found.

    A MIG instance that is made again has other device nodes, which the CDI spec and the metadata
    name. That a pod has ended, or another one has come, is nobody's change.
    """
    drifts = tuple(drift for drift in found if not isinstance(drift, PodChange))
    if len(drifts) < len(found):
        drifts = tuple(drift for drift in drifts if not isinstance(drift, CdiSpecDrift))
    of_instances = tuple(
        drift for drift in drifts if isinstance(drift, MigModeDrift | MigInstanceDrift)
    )
    return of_instances or drifts
