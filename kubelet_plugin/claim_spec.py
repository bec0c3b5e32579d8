"""What a container gets for a claim: from prepared claim to CDI spec. A decision, no I/O.

There is a CDI device for each device of each request, so that a container that names a request gets
that request's and no other's. Several may end up in one container, so nothing in one may contradict
another: each tells of itself in variables of its own.

    CARINA_DEVICE_<uid>_<request>_<device>=<GPU UUID>       for each, without the share's id
    CARINA_ADMIN_<uid>_<request>_<device>=true              where it was given with admin access
    CARINA_CLAIM_<uid>=<namespace>/<name>                   once for each claim
    NVIDIA_VISIBLE_DEVICES=void                             so that NVIDIA's own runtime adds none

in which what is no letter or digit becomes `_`, all upper case. By CARINA_CLAIM the plugin itself
finds out whose spec it is, where the checkpoint cannot say.
"""

import re
from collections.abc import Mapping
from typing import Final, assert_never

from kubelet_plugin.cdi_spec import (
    CdiDevice,
    CdiError,
    CdiSpec,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
    environment_of,
    qualified_name,
)
from kubelet_plugin.claim import ClaimDevice, PreparedClaim
from kubelet_plugin.device import Device, WholeGpu
from kubelet_plugin.dra_service import ClaimReference, GrantedDevice
from kubelet_plugin.driver_files import DriverFiles

CLAIM_KIND: Final = "claim"
"""The CDI class of all our devices; the vendor is the driver's name."""
CONTROL_NODES: Final = (
    "/dev/nvidiactl",
    "/dev/nvidia-uvm",
    "/dev/nvidia-uvm-tools",
    "/dev/nvidia-modeset",
)
"""What every GPU needs beside its own node."""
_CLAIM_VARIABLE: Final = "CARINA_CLAIM_"


def gpu_nodes(device: Device) -> tuple[str, ...]:
    """The device nodes, in the container, that are a device's own."""
    match device:
        case WholeGpu(gpu=gpu):
            return (f"/dev/nvidia{gpu.minor}",)
    assert_never(device)


def claim_spec(
    claim: PreparedClaim,
    devices: Mapping[str, Device],
    *,
    driver: str,
    host_paths: Mapping[str, str],
    files: DriverFiles,
) -> CdiSpec:
    """Gives the spec of a claim.

    `devices` are this node's, by name, all that the claim names among them; `host_paths` are the
    device nodes that are there, by their path in the container.
    """
    return CdiSpec(
        vendor=driver,
        kind=CLAIM_KIND,
        devices=tuple(
            CdiDevice(
                _name(claim, device),
                ContainerEdits(
                    environment=_variables(claim, device, devices[device.device]),
                    device_nodes=tuple(
                        DeviceNode(path, host_paths[path])
                        for path in gpu_nodes(devices[device.device])
                    ),
                ),
            )
            for device in claim.devices
        ),
        edits=ContainerEdits(
            environment=(
                (_CLAIM_VARIABLE + _variable(claim.uid), claim.key),
                ("NVIDIA_VISIBLE_DEVICES", "void"),
                *_library_path(files),
            ),
            device_nodes=tuple(
                DeviceNode(path, host_paths[path]) for path in CONTROL_NODES if path in host_paths
            ),
            mounts=_mounts(files),
            hooks=_hooks(files),
        ),
    )


def grants(claim: PreparedClaim, driver: str) -> tuple[GrantedDevice, ...]:
    """What the kubelet is told of a claim whose spec is written."""
    return tuple(
        GrantedDevice(
            request=device.request,
            pool=device.pool,
            device=device.device,
            cdi_ids=(qualified_name(driver, CLAIM_KIND, _name(claim, device)),),
            share_id=device.share_id,
        )
        for device in claim.devices
    )


def claim_of(uid: str, content: bytes) -> ClaimReference:
    """Finds out whose spec a file of a claim with that UID is.

    Raises:
        CdiError: it does not say.
    """
    key = environment_of(content).get(_CLAIM_VARIABLE + _variable(uid), "")
    namespace, _, name = key.partition("/")
    if not namespace or not name:
        raise CdiError(f"not a CDI spec of ours: {_CLAIM_VARIABLE}{_variable(uid)} is missing")
    return ClaimReference(uid, namespace, name)


def _name(claim: PreparedClaim, device: ClaimDevice) -> str:
    """Begins with a letter: a digit would need a later version of CDI with some runtimes."""
    share = () if device.share_id is None else (device.share_id,)
    return "-".join(("claim", claim.uid, device.request, device.device, *share))


def _variables(
    claim: PreparedClaim, device: ClaimDevice, node_device: Device
) -> tuple[tuple[str, str], ...]:
    suffix = "_".join(_variable(part) for part in (claim.uid, device.request, device.device))
    match node_device:
        case WholeGpu(gpu=gpu):
            variables = ((f"CARINA_DEVICE_{suffix}", gpu.uuid),)
        case _:
            assert_never(node_device)
    admin = ((f"CARINA_ADMIN_{suffix}", "true"),) if device.admin_access else ()
    return (*variables, *admin)


def _variable(text: str) -> str:
    return re.sub(r"[^A-Z0-9]", "_", text.upper())


def _mounts(files: DriverFiles) -> tuple[Mount, ...]:
    mounts = [Mount(each.host_path, each.path) for each in (*files.libraries, *files.others)]
    if files.hook is None:
        # Nobody makes the links in the container, so a library is there under its second name too.
        mounts += [
            Mount(library.host_path, f"{library.folder}/{library.soname}")
            for library in files.libraries
            if library.soname != library.file_name
        ]
    return tuple(sorted(set(mounts), key=lambda mount: mount.container_path))


def _library_path(files: DriverFiles) -> tuple[tuple[str, str], ...]:
    """Without the hook nobody tells the container's linker, which looks here first."""
    return () if files.hook else (("LD_LIBRARY_PATH", ":".join(files.library_folders)),)


def _hooks(files: DriverFiles) -> tuple[Hook, ...]:
    if files.hook is None:
        return ()
    links = [
        f"--link={library.file_name}::{library.folder}/{library.soname}"
        for library in files.libraries
        if library.soname != library.file_name
    ]
    links += [
        f"--link={library.soname}::{library.folder}/{library.soname.partition('.so')[0]}.so"
        for library in files.libraries
        if library.soname.startswith("libcuda.so")
    ]
    folders = [f"--folder={folder}" for folder in files.library_folders]
    return tuple(
        Hook("createContainer", files.hook, ("nvidia-cdi-hook", *arguments))
        for arguments in (
            ("create-symlinks", *links),
            ("enable-cuda-compat", f"--host-driver-version={files.version}"),
            ("update-ldcache", *folders),
            ("disable-device-node-modification",),
        )
    )
