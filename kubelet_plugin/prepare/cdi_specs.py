"""The port for CDI specs: composes what a claim's containers get, and keeps the file so.

A spec is always composed from what is on the node now, and written if the file differs. Making it
therefore also makes the device nodes that it names, and brings back what was in /var/run before a
reboot.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from kubelet_plugin.cdi.claim_spec import claim_of, claim_spec, driver_edits
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_files import DriverFiles
from kubelet_plugin.cdi.driver_root import DriverFilesError, DriverRoot
from kubelet_plugin.cdi.spec import CdiSpecError, ContainerEdits, DeviceNode, render
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import ClaimError, DriverUnknown
from kubelet_plugin.host import HostPaths
from kubelet_plugin.prepare.device_nodes import DeviceNodeError, NvidiaNodes
from kubelet_plugin.prepare.resource import ClaimSpec, Identity, ResourceError, spec_identity


class CdiSpecs:
    """The CDI specs of one driver's claims."""

    def __init__(
        self,
        *,
        driver: str,
        driver_root: DriverRoot,
        host: HostPaths,
        host_device_root: Path,
        directory: CdiDirectory,
    ) -> None:
        """`host_device_root` is the root of the host's /dev as the container runtime sees it.

        `host.root` is the same as this process sees it.
        """
        self._driver = driver
        self._driver_root = driver_root
        self._host = host
        self._host_device_root = str(host_device_root).rstrip("/")
        self._directory = directory
        self._driver_edits: tuple[DriverFiles, tuple[DeviceNode, ...], ContainerEdits] | None = None

    def observe(self) -> Collection[Identity]:
        """Identifies the specs that are there, half-written ones included.

        Raises:
            ResourceError: the folder cannot be read.
        """
        try:
            return {spec_identity(uid) for uid in self._directory.uids()}
        except OSError as error:
            raise ResourceError(
                f"CDI specs in {self._directory.path} cannot be listed: {error}; repair the folder",
                retriable=True,
            ) from error

    def owner(self, uid: str) -> ClaimReference | None:
        """Reads whose spec it is; None if that cannot be told, such as of a damaged one."""
        try:
            content = self._directory.read(uid)
        except OSError:
            return None
        owner = claim_of(content) if content is not None else None
        return owner if owner is not None and owner.uid == uid else None

    def make(self, spec: ClaimSpec, _made: Mapping[Identity, None]) -> None:
        """Writes the spec, unless the file has it already.

        Raises:
            ClaimError: the driver's version is not known.
            ResourceError: a device node or the driver's files are missing, a name of the claim
                cannot be in a spec, or the file cannot be written.
        """
        version = _driver_version(spec)
        try:
            nvidia = NvidiaNodes(self._host)
            nodes = {
                name: self._seen_by_runtime(nvidia.ensure_gpu(device.gpu))
                for name, device in spec.devices.items()
            }
            control_nodes = self._seen_by_runtime(nvidia.ensure_control())
            shared = self._shared(self._driver_root.files(version), control_nodes)
            content = render(claim_spec(self._driver, spec.claim, spec.devices, nodes, shared))
        except CdiSpecError as error:
            raise ResourceError(str(error), retriable=False) from error
        except (DeviceNodeError, DriverFilesError) as error:
            raise ResourceError(str(error), retriable=True) from error
        try:
            self._directory.write(spec.claim.uid, content)
        except OSError as error:
            raise ResourceError(
                f"its CDI spec in {self._directory.path} cannot be written: {error}; check the "
                "folder and its file system",
                retriable=True,
            ) from error

    def remove(self, uid: str) -> None:
        """Removes the spec of the claim with that UID, if there is one.

        Raises:
            ResourceError: it cannot be removed.
        """
        try:
            self._directory.remove(uid)
        except OSError as error:
            raise ResourceError(
                f"the CDI spec of the claim with UID {uid} in {self._directory.path} cannot be "
                f"removed: {error}; remove it by hand",
                retriable=True,
            ) from error

    def _shared(self, files: DriverFiles, control_nodes: tuple[DeviceNode, ...]) -> ContainerEdits:
        """Composed once for as long as the driver stays: it takes a third of a prepare."""
        known = self._driver_edits
        if known is None or known[0] is not files or known[1] != control_nodes:
            known = files, control_nodes, driver_edits(files, control_nodes)
            self._driver_edits = known
        return known[2]

    def _seen_by_runtime(self, paths: tuple[str, ...]) -> tuple[DeviceNode, ...]:
        return tuple(DeviceNode(path, self._host_device_root + path) for path in paths)


def _driver_version(spec: ClaimSpec) -> str:
    versions = {device.gpu.driver_version for device in spec.devices.values()}
    version = versions.pop() if len(versions) == 1 else None
    if version is None:
        raise ClaimError(DriverUnknown(spec.claim))
    return version
