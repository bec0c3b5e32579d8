"""Whether a recorded claim has what it needs on the node: plain values."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from kubelet_plugin.prepare.resource import MadeInstance


@dataclass(frozen=True, slots=True)
class SetUp:
    """The claim has what it needs on the node."""

    instances: Mapping[str, MadeInstance] = field(default_factory=dict)
    """The MIG instances of its partitions, by the name of the device."""
    limited: frozenset[str] = frozenset()
    """The GPUs, `gpu-<minor>`, on which the driver keeps its pod within its shares' memory."""
    mps: bool = False
    """Whether it has an MPS daemon."""


@dataclass(frozen=True, slots=True)
class NotSetUp:
    """The claim lacks something that could not be made again."""

    message: str


@dataclass(frozen=True, slots=True)
class NotChecked:
    """What the claim needs cannot be checked, because its GPU has a problem."""


Readiness: TypeAlias = SetUp | NotSetUp | NotChecked


def limited_gpus(readiness: Readiness | None) -> frozenset[str]:
    """Returns the GPUs, `gpu-<minor>`, on which the claim's pod is known to be limited.

    None is a claim that is being prepared, or not checked yet.
    """
    return readiness.limited if isinstance(readiness, SetUp) else frozenset()


def has_daemon(readiness: Readiness | None) -> bool:
    """Returns whether the claim is known to have an MPS daemon."""
    return isinstance(readiness, SetUp) and readiness.mps
