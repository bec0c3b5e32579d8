"""The ports of all kinds of node resources: passes each step to the port of the kind."""

from collections.abc import Collection, Mapping, Sequence
from typing import assert_never

from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.prepare.cdi_specs import CdiSpecs
from kubelet_plugin.prepare.memory_limits import MemoryLimits
from kubelet_plugin.prepare.metadata_files import MetadataFiles
from kubelet_plugin.prepare.mig_instances import MigInstances
from kubelet_plugin.prepare.mig_mode import MigModes
from kubelet_plugin.prepare.mps_daemons import MpsDaemons
from kubelet_plugin.prepare.resource import (
    KINDS,
    ClaimSpec,
    DeviceMetadata,
    Identity,
    Made,
    MemoryLimit,
    MigInstance,
    MigModeOff,
    MigModeOn,
    MpsControlDaemon,
    MpsOfDevices,
    NodeResource,
    TimeSlice,
)
from kubelet_plugin.prepare.time_slices import TimeSlices
from kubelet_plugin.prepare.wanted_daemon import resolved


class NodePorts:
    """The ports of this node; implements `Ports`."""

    def __init__(
        self,
        *,
        mig_modes: MigModes,
        mig_instances: MigInstances,
        time_slices: TimeSlices,
        memory_limits: MemoryLimits,
        mps_daemons: MpsDaemons,
        metadata_files: MetadataFiles,
        cdi_specs: CdiSpecs,
    ) -> None:
        self._mig_modes = mig_modes
        self._mig_instances = mig_instances
        self._time_slices = time_slices
        self._memory_limits = memory_limits
        self._mps_daemons = mps_daemons
        self._metadata_files = metadata_files
        self._cdi_specs = cdi_specs

    @property
    def kinds(self) -> Sequence[str]:
        """All kinds, in the order of creation."""
        return KINDS

    def observe(self) -> Collection[Identity]:
        """Returns what is on the node; raises ResourceError."""
        ports = (
            self._mig_modes,
            self._mig_instances,
            self._time_slices,
            self._memory_limits,
            self._mps_daemons,
            self._metadata_files,
            self._cdi_specs,
        )
        return {identity for port in ports for identity in port.observe()}

    def owner(self, identity: Identity) -> ClaimReference | None:
        """Returns the claim that the resource names; None if it names none."""
        return self._cdi_specs.owner(identity.name) if identity.kind == ClaimSpec.kind else None

    def make(self, resource: NodeResource, made: Mapping[Identity, Made]) -> Made:
        """Creates or completes the resource; raises ResourceError or ClaimError."""
        match resource:
            case MigModeOn() | MigModeOff():
                self._mig_modes.make(resource)
                return None
            case MigInstance():
                return self._mig_instances.make(resource)
            case TimeSlice():
                self._time_slices.make(resource)
                return None
            case MemoryLimit():
                return self._memory_limits.make(resource)
            case MpsControlDaemon():
                return self._mps_daemons.make(resource)
            case MpsOfDevices():
                return self._mps_daemons.make(resolved(resource, made))
            case DeviceMetadata():
                return self._metadata_files.make(resource, made)
            case ClaimSpec():
                self._cdi_specs.make(resource, made)
                return None
        assert_never(resource)

    def remove(self, identity: Identity) -> None:
        """Removes the resource, if it exists; raises ResourceError."""
        match identity.kind:
            case MigModeOn.kind:
                self._mig_modes.remove(identity)
            case MigInstance.kind:
                self._mig_instances.remove(identity)
            case TimeSlice.kind:
                self._time_slices.remove(identity)
            case MemoryLimit.kind:
                self._memory_limits.remove(identity)
            case MpsControlDaemon.kind:
                self._mps_daemons.remove(identity)
            case DeviceMetadata.kind:
                self._metadata_files.remove(identity.name)
            case ClaimSpec.kind:
                self._cdi_specs.remove(identity.name)
            case kind:
                raise AssertionError(f"no port for {kind}")

    def remove_leftover(self, identity: Identity) -> None:
        """Removes a resource that no claim needs, without waiting for carina-sharing."""
        if identity.kind == MpsControlDaemon.kind:
            self._mps_daemons.remove_leftover(identity)
        else:
            self.remove(identity)
