"""What a prepared claim needs on the node: device nodes, and a CDI spec that names them.

All of it is idempotent and follows from the claim's entry in the checkpoint and from what is on the
node now.
"""

from collections.abc import Callable, Mapping
from pathlib import Path

import structlog

from kubelet_plugin import device_nodes
from kubelet_plugin.cdi_directory import CdiDirectory
from kubelet_plugin.cdi_spec import CdiError
from kubelet_plugin.claim import PreparedClaim
from kubelet_plugin.claim_spec import CONTROL_NODES, claim_of, claim_spec, gpu_nodes, grants
from kubelet_plugin.device import Device
from kubelet_plugin.device_nodes import DeviceNodeError
from kubelet_plugin.dra_service import ClaimError, ClaimReference, GrantedDevice
from kubelet_plugin.driver_files import DriverFilesError, DriverRoot
from kubelet_plugin.gpu_health import Healthy, Lost, Unreadable
from kubelet_plugin.host import HostPaths

_OPTIONAL_NODES = frozenset({"/dev/nvidia-modeset", "/dev/nvidia-uvm-tools"})
"""Of use to display servers and profilers only."""

_log = structlog.stdlib.get_logger(__name__)


class ContainerNeeds:
    """Makes and unmakes what containers need for their claims."""

    def __init__(
        self,
        *,
        driver: str,
        devices: Callable[[], Mapping[str, Device]],
        look_again: Callable[[], None],
        host: HostPaths,
        driver_root: DriverRoot,
        directory: CdiDirectory,
    ) -> None:
        """`devices` gives the node's by name, `look_again` has the GPUs read anew, both at once."""
        self._driver = driver
        self._devices = devices
        self._look_again = look_again
        self._host = host
        self._driver_root = driver_root
        self._directory = directory

    def make(self, claim: PreparedClaim) -> None:
        """Makes what is missing for the claim.

        Raises:
            ClaimError: with what is wrong, and whether it may pass.
        """
        devices = self._devices()
        used = [self._usable(claim, name, devices) for name in _names(claim)]
        try:
            own = {path for device in used for path in gpu_nodes(device)}
            spec = claim_spec(
                claim,
                devices,
                driver=self._driver,
                host_paths=self._nodes(own),
                files=self._driver_root.files(_driver_version(claim, used)),
            )
            self._directory.write(claim.uid, spec.render())
        except (DeviceNodeError, DriverFilesError, OSError) as error:
            raise ClaimError(f"ResourceClaim {claim.key}: {error}", may_pass=True) from error

    def unmake(self, uid: str) -> None:
        """Removes the claim's spec; device nodes stay, they are the driver's.

        Raises:
            ClaimError: it cannot be removed.
        """
        try:
            self._directory.remove(uid)
        except OSError as error:
            raise ClaimError(f"the CDI spec cannot be removed: {error}", may_pass=True) from error

    def found(self) -> Mapping[str, ClaimReference]:
        """Gives the claims, by UID, that have a spec; an unreadable one's are without names."""
        return {uid: self._whose(uid) for uid in self._directory.uids()}

    def grants(self, claim: PreparedClaim) -> tuple[GrantedDevice, ...]:
        """Gives the answer for a claim that has all it needs."""
        return grants(claim, self._driver)

    def _whose(self, uid: str) -> ClaimReference:
        try:
            return claim_of(uid, self._directory.read(uid) or b"")
        except CdiError as error:
            _log.warning("a CDI spec does not say whose it is", uid=uid, reason=str(error))
            return ClaimReference(uid, "", "")

    def _usable(self, claim: PreparedClaim, name: str, devices: Mapping[str, Device]) -> Device:
        device = devices.get(name)
        if device is None:
            self._look_again()
            there = ", ".join(sorted(devices)) or "none"
            raise ClaimError(
                f"ResourceClaim {claim.key}: this node has no device {name} now (it has: {there}); "
                "see the Events of the Node for what became of its GPU",
                may_pass=True,
            )
        match device.health:
            case Healthy():
                return device
            case Lost() | Unreadable():
                self._look_again()
                raise ClaimError(
                    f"ResourceClaim {claim.key}: the GPU of device {name} does not answer; see the "
                    "Events of the Node",
                    may_pass=True,
                )

    def _nodes(self, own: set[str]) -> dict[str, str]:
        """The device nodes by their path in the container; the optional ones where they can be."""
        paths: dict[str, Path] = {}
        for path in (*CONTROL_NODES, *sorted(own)):
            try:
                paths[path] = device_nodes.ensure(self._host, path)
            except DeviceNodeError:
                if path not in _OPTIONAL_NODES:
                    raise
        return {path: str(where) for path, where in paths.items()}


def _names(claim: PreparedClaim) -> tuple[str, ...]:
    return tuple(dict.fromkeys(device.device for device in claim.devices))


def _driver_version(claim: PreparedClaim, used: list[Device]) -> str:
    version = next((d.gpu.driver_version for d in used if d.gpu.driver_version), None)
    if version is None:
        raise ClaimError(
            f"ResourceClaim {claim.key}: the driver does not tell its version, by which its files "
            "are found",
            may_pass=True,
        )
    return version
