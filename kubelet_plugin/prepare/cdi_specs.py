"""The port for CDI specs: composes and writes the CDI spec of a claim.

A spec is always composed from the node's current state, and written if the file differs. This also
creates the device nodes that the spec names, and restores a spec that a reboot removed from
/var/run.
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from pathlib import Path
from typing import assert_never

from kubelet_plugin.cdi.claim_spec import (
    InjectedDevice,
    MpsFolders,
    claim_of,
    claim_spec,
    driver_edits,
)
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_files import DriverFiles
from kubelet_plugin.cdi.driver_root import DriverFilesError, DriverRoot
from kubelet_plugin.cdi.spec import CdiSpecError, ContainerEdits, DeviceNode, Mount, render_spec
from kubelet_plugin.claims.claim import ClaimReference, NodeClaim
from kubelet_plugin.claims.drift import CdiSpecDrift
from kubelet_plugin.claims.failure import ClaimError, DriverUnknown
from kubelet_plugin.claims.resource_failure import NameInvalid, file_failure
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.monitor import Monitor
from kubelet_plugin.devices.name import gpu_name, parse_name
from kubelet_plugin.devices.partition import FoundPartition, Partition
from kubelet_plugin.devices.share import Share
from kubelet_plugin.devices.whole import WholeGpu
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.gpu import Gpu
from kubelet_plugin.prepare.device_nodes import NvidiaNodes
from kubelet_plugin.prepare.drift_notes import DriftNotes
from kubelet_plugin.prepare.resource import (
    ClaimSpec,
    Identity,
    Made,
    MadeInstance,
    MadeLimit,
    MadeMetadata,
    MadeMps,
    ResourceError,
    daemon_identity,
    instance_identity,
    limit_identity,
    metadata_identity,
    spec_identity,
)


class CdiSpecs:
    """The CDI specs of this driver's claims on the node."""

    def __init__(
        self,
        *,
        driver: str,
        driver_root: DriverRoot,
        host: HostPaths,
        host_device_root: Path,
        directory: CdiDirectory,
        notes: DriftNotes | None = None,
    ) -> None:
        """`host_device_root` is the root of the host's /dev, as the container runtime sees it.

        `host.root` is the same folder, as this process sees it. `notes` learns of what is made.
        """
        self._driver = driver
        self._driver_root = driver_root
        self._host = host
        self._host_device_root = str(host_device_root).rstrip("/")
        self._directory = directory
        self._notes = notes or DriftNotes()
        self._driver_edits: tuple[DriverFiles, tuple[DeviceNode, ...], ContainerEdits] | None = None

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the specs on the node, including incomplete ones.

        Raises:
            ResourceError: the folder cannot be read.
        """
        try:
            return {spec_identity(uid) for uid in self._directory.uids()}
        except OSError as error:
            raise _unusable(
                f"CDI specs in {self._directory.path}",
                "listed",
                error,
                "check that the folder exists and is readable",
            ) from error

    def owner(self, uid: str) -> ClaimReference | None:
        """Returns the claim that the spec names; None if the spec is missing or damaged.

        Raises:
            ResourceError: the file cannot be read.
        """
        try:
            content = self._directory.read(uid)
        except IsADirectoryError:
            return None
        except OSError as error:
            raise _unusable(self._spec_of(uid), "read", error) from error
        owner = claim_of(content) if content is not None else None
        return owner if owner is not None and owner.uid == uid else None

    def make(self, spec: ClaimSpec, made: Mapping[Identity, Made]) -> None:
        """Writes the spec, unless the file is up to date.

        `made` has the claim's MIG instances, and its device metadata if containers get it.

        Raises:
            ClaimError: the driver's version is not known.
            ResourceError: a device node or a file of the driver is missing, a name in the claim is
                not valid in a spec, or the file cannot be written.
        """
        version = _driver_version(spec)
        try:
            nvidia = NvidiaNodes(self._host, self._notes)
            injected = {
                name: self._injected(spec.claim, device, nvidia, made)
                for name, device in spec.devices.items()
            }
            control_nodes = self._seen_by_runtime(nvidia.ensure_control())
            shared = self._shared(self._driver_root.files(version), control_nodes)
            content = render_spec(
                claim_spec(
                    self._driver,
                    spec.claim,
                    spec.devices,
                    injected,
                    shared,
                    metadata=_metadata_mounts(spec, made),
                    mps=_mps_folders(spec, made),
                )
            )
        except CdiSpecError as error:
            raise ResourceError(NameInvalid(str(error))) from error
        except DriverFilesError as error:
            raise ResourceError(error.failure) from error
        uid = spec.claim.uid
        try:
            before = self._directory.write(uid, content)
        except OSError as error:
            raise _unusable(f"its CDI spec in {self._directory.path}", "written", error) from error
        if before != content:
            self._notes.note(CdiSpecDrift(self._directory.file(uid), missing=before is None))

    def remove(self, uid: str) -> None:
        """Removes the spec of the claim with this UID, if it exists.

        Raises:
            ResourceError: the spec cannot be removed.
        """
        try:
            self._directory.remove(uid)
        except OSError as error:
            raise _unusable(
                self._spec_of(uid), "removed", error, "delete the file manually"
            ) from error

    def _spec_of(self, uid: str) -> str:
        return f"the CDI spec of the claim with UID {uid} in {self._directory.path}"

    def _shared(self, files: DriverFiles, control_nodes: tuple[DeviceNode, ...]) -> ContainerEdits:
        """Returns the edits of all devices, cached: composing them is a third of a prepare."""
        known = self._driver_edits
        if known is None or known[0] is not files or known[1] != control_nodes:
            known = files, control_nodes, driver_edits(files, control_nodes)
            self._driver_edits = known
        return known[2]

    def _injected(
        self,
        claim: NodeClaim,
        device: GpuDevice,
        nvidia: NvidiaNodes,
        made: Mapping[Identity, Made],
    ) -> InjectedDevice:
        """Returns what containers get of a device, and ensures that its device nodes exist.

        Raises:
            DeviceNodeError: a node is missing or wrong, and cannot be created.
        """
        match device:
            case WholeGpu(gpu):
                return self._of_gpu(gpu, nvidia.ensure_gpu(gpu))
            case Share(gpu):
                limit = made.get(limit_identity(claim.uid, gpu_name(parse_name(device.name))))
                limited = isinstance(limit, MadeLimit)
                return replace(self._of_gpu(gpu, nvidia.ensure_gpu(gpu)), limited=limited)
            case Monitor(gpu):
                return self._of_gpu(gpu, nvidia.ensure_monitor(gpu))
            case Partition(gpu) | FoundPartition(gpu):
                instance = made[instance_identity(device.name)]
                match instance:
                    case MadeInstance(uuid=uuid):
                        nodes = nvidia.ensure_partition(gpu, instance)
                        return InjectedDevice(uuid, self._seen_by_runtime(nodes))
                    case MadeMetadata() | MadeLimit() | MadeMps() | None:
                        raise AssertionError(f"the port of {device.name} gave no instance")
                assert_never(instance)
        assert_never(device)

    def _of_gpu(self, gpu: Gpu, nodes: tuple[str, ...]) -> InjectedDevice:
        return InjectedDevice(gpu.uuid, self._seen_by_runtime(nodes))

    def _seen_by_runtime(self, paths: tuple[str, ...]) -> tuple[DeviceNode, ...]:
        return tuple(DeviceNode(path, self._host_device_root + path) for path in paths)


def _unusable(
    subject: str, action: str, error: OSError, remedy: str = "check the folder and its file system"
) -> ResourceError:
    return ResourceError(file_failure(subject, action, error, remedy))


def _metadata_mounts(spec: ClaimSpec, made: Mapping[Identity, Made]) -> Mapping[str, Mount]:
    """Returns the mounts of the files with device metadata, by request."""
    metadata = made.get(metadata_identity(spec.claim.uid))
    if not isinstance(metadata, MadeMetadata):
        return {}
    return {
        request: Mount(file.host_path, file.container_path)
        for request, file in metadata.files.items()
    }


def _mps_folders(spec: ClaimSpec, made: Mapping[Identity, Made]) -> MpsFolders | None:
    daemon = made.get(daemon_identity(spec.claim.uid))
    return MpsFolders(daemon.pipe, daemon.shm) if isinstance(daemon, MadeMps) else None


def _driver_version(spec: ClaimSpec) -> str:
    versions = {device.gpu.driver_version for device in spec.devices.values()}
    version = versions.pop() if len(versions) == 1 else None
    if version is None:
        raise ClaimError(DriverUnknown(spec.claim))
    return version
