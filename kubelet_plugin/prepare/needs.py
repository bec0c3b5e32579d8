"""What a prepared claim needs on the node: device nodes, and a CDI spec that hands them out.

The spec is always made from what is there now and written if it differs, so that making what a
claim needs also repairs it, and brings back what was in /var/run before a reboot.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path, PurePosixPath
from typing import assert_never

from kubelet_plugin.cdi.claim_spec import claim_of, claim_spec, driver_edits, grants
from kubelet_plugin.cdi.directory import CdiDirectory
from kubelet_plugin.cdi.driver_files import DriverFiles
from kubelet_plugin.cdi.driver_root import DriverFilesError, DriverRoot
from kubelet_plugin.cdi.spec import CdiSpecError, ContainerEdits, DeviceNode, render
from kubelet_plugin.claims.claim import ClaimError, ClaimReference, GrantedDevice, PreparedClaim
from kubelet_plugin.devices.whole import Device
from kubelet_plugin.host import HostPaths
from kubelet_plugin.inventory.health import Healthy, Lost, Unreadable
from kubelet_plugin.prepare.device_nodes import (
    DeviceNodeError,
    ensure_control_nodes,
    ensure_gpu_nodes,
)

__all__ = ["ContainerNeeds"]


class ContainerNeeds:
    """The `ClaimNeeds` of claims whose devices go to containers. Call with the node's lock held."""

    def __init__(
        self,
        *,
        driver: str,
        devices: Callable[[], Mapping[str, Device]],
        driver_root: DriverRoot,
        host: HostPaths,
        host_device_root: Path,
        specs: CdiDirectory,
    ) -> None:
        """`devices` gives the node's devices by name, as they are now.

        `host_device_root` is the root of the host's /dev as the container runtime sees it, while
        `host.root` is the same as this process sees it.
        """
        self._driver = driver
        self._devices = devices
        self._driver_root = driver_root
        self._host = host
        self._host_device_root = PurePosixPath(host_device_root)
        self._specs = specs
        self._known_edits: tuple[DriverFiles, tuple[DeviceNode, ...], ContainerEdits] | None = None

    def make(self, claim: PreparedClaim) -> None:
        """Makes what is missing for the claim.

        Raises:
            ClaimError: a device, its node or the driver is not there, or the spec not writable.
        """
        known = self._devices()
        devices = {
            granted.device: self._usable(claim, granted.device, known) for granted in claim.devices
        }
        with self._failing(claim):
            nodes = {
                name: self._seen_by_runtime(ensure_gpu_nodes(self._host, device.gpu))
                for name, device in devices.items()
            }
            control_nodes = self._seen_by_runtime(ensure_control_nodes(self._host))
            shared = self._driver_edits(self._driver_files(claim, devices), control_nodes)
            spec = claim_spec(self._driver, claim, devices, nodes, shared)
            self._specs.write(claim.uid, render(spec))

    def unmake(self, uid: str) -> None:
        """Removes whatever exists for the claim. Device nodes stay: they are the node's.

        Raises:
            ClaimError: the spec cannot be removed.
        """
        try:
            self._specs.remove(uid)
        except OSError as error:
            raise ClaimError(
                f"the CDI spec of the claim with UID {uid} in {self._specs.path} cannot be "
                f"removed: {error}",
                may_pass=True,
            ) from error

    def found(self) -> Mapping[str, ClaimReference]:
        """Gives the claims, by UID, of which there is a spec.

        Where a spec is damaged, or was being written when the plugin was killed, it is not known
        whose it is: namespace and name are empty.

        Raises:
            ClaimError: the folder of the specs cannot be read.
        """
        try:
            return {uid: self._owner(uid) for uid in self._specs.uids()}
        except OSError as error:
            raise ClaimError(
                f"CDI specs in {self._specs.path} cannot be read: {error}", may_pass=True
            ) from error

    def grants(self, claim: PreparedClaim) -> tuple[GrantedDevice, ...]:
        """Gives the answer for a claim that has all it needs."""
        return grants(self._driver, claim)

    def _owner(self, uid: str) -> ClaimReference:
        content = self._specs.read(uid)
        owner = claim_of(content) if content is not None else None
        return owner if owner is not None and owner.uid == uid else ClaimReference(uid, "", "")

    def _usable(self, claim: PreparedClaim, name: str, known: Mapping[str, Device]) -> Device:
        device = known.get(name)
        if device is None:
            raise ClaimError(
                f"device {name} of ResourceClaim {claim.key} is not on this node, which has "
                f"{', '.join(sorted(known)) or 'none'}; delete the pod to have it scheduled anew "
                "unless the GPU comes back",
                may_pass=True,
            )
        match device.health:
            case Healthy():
                return device
            case Lost(failure):
                raise ClaimError(
                    f"device {name} ({device.gpu.uuid}) of ResourceClaim {claim.key} fell off the "
                    f"bus ({failure}); reset the GPU or reboot the node, or delete the pod to have "
                    "it scheduled anew",
                    may_pass=False,
                )
            case Unreadable(failure):
                raise ClaimError(
                    f"device {name} ({device.gpu.uuid}) of ResourceClaim {claim.key} does not "
                    f"answer ({failure}); if it stays so, reset the GPU",
                    may_pass=True,
                )
        assert_never(device.health)

    def _driver_files(self, claim: PreparedClaim, devices: Mapping[str, Device]) -> DriverFiles:
        versions = {device.gpu.driver_version for device in devices.values()}
        version = versions.pop() if len(versions) == 1 else None
        if version is None:
            raise ClaimError(
                f"ResourceClaim {claim.key}: the driver does not tell its version, without which "
                "its libraries cannot be found; see whether nvidia-smi works on the node",
                may_pass=True,
            )
        return self._driver_root.files(version)

    def _driver_edits(
        self, files: DriverFiles, control_nodes: tuple[DeviceNode, ...]
    ) -> ContainerEdits:
        """Decided once for as long as the driver stays: it is a third of a prepare otherwise."""
        known = self._known_edits
        if known is None or known[0] is not files or known[1] != control_nodes:
            known = files, control_nodes, driver_edits(files, control_nodes)
            self._known_edits = known
        return known[2]

    def _seen_by_runtime(self, paths: tuple[str, ...]) -> tuple[DeviceNode, ...]:
        return tuple(
            DeviceNode(path, str(self._host_device_root / path.lstrip("/"))) for path in paths
        )

    @contextmanager
    def _failing(self, claim: PreparedClaim) -> Iterator[None]:
        """Says of which claim it is what fails."""
        try:
            yield
        except CdiSpecError as error:
            raise ClaimError(f"ResourceClaim {claim.key}: {error}", may_pass=False) from error
        except (DeviceNodeError, DriverFilesError) as error:
            raise ClaimError(f"ResourceClaim {claim.key}: {error}", may_pass=True) from error
        except OSError as error:
            raise ClaimError(
                f"ResourceClaim {claim.key}: its CDI spec in {self._specs.path} cannot be "
                f"written: {error}",
                may_pass=True,
            ) from error
