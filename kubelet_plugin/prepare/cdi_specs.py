"""The port for CDI specs: composes and writes the CDI spec of a claim.

A spec is always composed from the node's current state, and written if the file differs. This also
creates the device nodes that the spec names, and restores a spec that a reboot removed from
/var/run.
"""

from collections.abc import Collection, Mapping
from pathlib import Path

from kubelet_plugin.cdi.claim_spec import claim_of, claim_spec, driver_edits
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_files import DriverFiles
from kubelet_plugin.cdi.driver_root import DriverFilesError, DriverRoot
from kubelet_plugin.cdi.spec import CdiSpecError, ContainerEdits, DeviceNode, render_spec
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import ClaimError, DriverUnknown
from kubelet_plugin.host import HostPaths
from kubelet_plugin.prepare.device_nodes import DeviceNodeError, NvidiaNodes
from kubelet_plugin.prepare.resource import ClaimSpec, Identity, ResourceError, spec_identity


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
    ) -> None:
        """`host_device_root` is the root of the host's /dev, as the container runtime sees it.

        `host.root` is the same folder, as this process sees it.
        """
        self._driver = driver
        self._driver_root = driver_root
        self._host = host
        self._host_device_root = str(host_device_root).rstrip("/")
        self._directory = directory
        self._driver_edits: tuple[DriverFiles, tuple[DeviceNode, ...], ContainerEdits] | None = None

    def observe(self) -> Collection[Identity]:
        """Returns the identities of the specs on the node, including incomplete ones.

        Raises:
            ResourceError: the folder cannot be read.
        """
        try:
            return {spec_identity(uid) for uid in self._directory.uids()}
        except OSError as error:
            raise ResourceError(
                f"CDI specs in {self._directory.path} cannot be listed: {error}; check that the "
                "folder exists and is readable",
                retriable=True,
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
            raise ResourceError(
                f"the CDI spec of the claim with UID {uid} in {self._directory.path} cannot be "
                f"read: {error}; check the folder and its file system",
                retriable=True,
            ) from error
        owner = claim_of(content) if content is not None else None
        return owner if owner is not None and owner.uid == uid else None

    def make(self, spec: ClaimSpec, _made: Mapping[Identity, None]) -> None:
        """Writes the spec, unless the file is up to date.

        Raises:
            ClaimError: the driver's version is not known.
            ResourceError: a device node or a file of the driver is missing, a name in the claim is
                not valid in a spec, or the file cannot be written.
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
            content = render_spec(claim_spec(self._driver, spec.claim, spec.devices, nodes, shared))
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
        """Removes the spec of the claim with this UID, if it exists.

        Raises:
            ResourceError: the spec cannot be removed.
        """
        try:
            self._directory.remove(uid)
        except OSError as error:
            raise ResourceError(
                f"the CDI spec of the claim with UID {uid} in {self._directory.path} cannot be "
                f"removed: {error}; delete the file manually",
                retriable=True,
            ) from error

    def _shared(self, files: DriverFiles, control_nodes: tuple[DeviceNode, ...]) -> ContainerEdits:
        """Returns the edits of all devices, cached: composing them is a third of a prepare."""
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
