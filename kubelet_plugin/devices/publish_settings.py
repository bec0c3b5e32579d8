"""The settings on which the published form of devices depends, besides the GPU."""

from dataclasses import dataclass
from fractions import Fraction
from typing import Final

from carina_dra.least_share import DEFAULT_LEAST_SHARE
from kubelet_plugin.inventory.health import EvictionCause

SHARE_CORES: Final = 10
"""Percent of a GPU that a share gets by default, unless the settings say otherwise."""

DEFAULT_EVICT: Final = frozenset({EvictionCause.LOST, EvictionCause.RESET, EvictionCause.BUS_RESET})
"""Problems that end what runs on the GPU anyway."""

HOST_MEMORY_MIB: Final = 2**20
"""The most memory, in MiB, that the settings can say that a device costs its node: 1 TiB."""


@dataclass(frozen=True, slots=True)
class PublishSettings:
    """How devices are published."""

    driver: str
    """Name of the DRA driver."""
    share_cores: int = SHARE_CORES
    """Percent of a GPU, 1 to 100, that a share gets whose request asks for no amount; at least the
    least share."""
    host_memory_mib: int = 0
    """The node's memory in MiB that a pod needs for each of its devices; 0 to publish nothing."""
    partition_types: bool = False
    """Whether slices name the attribute that groups devices by the counters that they consume."""
    least_share: Fraction = DEFAULT_LEAST_SHARE
    """The least part of a GPU that a share has, and that a partition or share counts in queues."""
    evict: frozenset[EvictionCause] = DEFAULT_EVICT
    """The problems of a GPU because of which its pods are evicted."""
