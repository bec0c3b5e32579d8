"""The CDI specification of a claim: what its containers get, and how they are told.

Each claim has a file of its own with a CDI device for each device that was allocated to one of its
requests; a container is given those of its requests. Names follow from the claim alone, so that
the kubelet can be answered without looking at the file, and are never used for anything else, as
runtimes that cache need it.

Two parts of a name must not run into each other. Names of the API (claim UIDs, requests, devices,
share ids) hold small letters, digits and hyphens. So CDI device names put `_` between them, and
names of environment variables put words in capitals between them, with `_` for each hyphen.
See docs/cdi.md.
"""

import json
import re
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath
from typing import assert_never

from kubelet_plugin.cdi.driver_files import DriverFiles, Library
from kubelet_plugin.cdi.spec import (
    CdiDevice,
    CdiSpec,
    CdiSpecError,
    ContainerEdits,
    DeviceNode,
    Hook,
    Mount,
)
from kubelet_plugin.claims.claim import AllocatedDevice, ClaimReference, NodeClaim, PreparedDevice
from kubelet_plugin.devices.device import Device
from kubelet_plugin.devices.whole import WholeGpu

_API_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_CLAIM_VARIABLE = re.compile(
    r"CARINA_CLAIM_(?P<uid>[a-z0-9_]+)=(?P<namespace>[a-z0-9-]+)/(?P<name>[a-z0-9.-]+)"
)
_VOID = "NVIDIA_VISIBLE_DEVICES=void"
"""Keeps NVIDIA's own container runtime, where it is the default one, from adding every GPU."""
_PRIVATE_LIBRARIES = PurePosixPath("/usr/local/nvidia/lib64")
"""Where containers find the driver's libraries if no hook can tell their loader: nothing else is
there, so that it can come first in the search, and images made for CUDA expect it."""


def kind(driver: str) -> str:
    """Gives the CDI kind of a driver's claims."""
    return f"{driver}/claim"


def cdi_device_id(driver: str, claim: NodeClaim, device: AllocatedDevice) -> str:
    """Gives the qualified name of a device of a claim, as container runtimes are given it."""
    return f"{kind(driver)}={_device_name(claim, device)}"


def prepared_devices(driver: str, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
    """Gives the kubelet's answer for a prepared claim."""
    return tuple(
        PreparedDevice(
            request=device.request,
            pool=device.pool,
            device=device.device,
            cdi_ids=(cdi_device_id(driver, claim, device),),
            share_id=device.share_id,
        )
        for device in claim.devices
    )


def claim_spec(
    driver: str,
    claim: NodeClaim,
    devices: Mapping[str, Device],
    nodes: Mapping[str, tuple[DeviceNode, ...]],
    shared: ContainerEdits,
) -> CdiSpec:
    """Gives the specification of a claim.

    `devices` and `nodes` hold, by name, each device that the claim was given; `shared` is what
    every container with one of them needs.

    Raises:
        CdiSpecError: a name that does not follow the API's rules.
    """
    return CdiSpec(
        kind=kind(driver),
        devices=tuple(
            CdiDevice(
                _device_name(claim, allocated),
                ContainerEdits(
                    env=tuple(_told(claim, allocated, devices[allocated.device])),
                    device_nodes=nodes[allocated.device],
                ),
            )
            for allocated in claim.devices
        ),
        edits=ContainerEdits(
            env=(*shared.env, f"CARINA_CLAIM_{_part(claim.uid)}={claim.namespace}/{claim.name}"),
            device_nodes=shared.device_nodes,
            mounts=shared.mounts,
            hooks=shared.hooks,
        ),
    )


def claim_of(content: bytes) -> ClaimReference | None:
    """Tells whose a specification is; None if it is not one of this driver's, or damaged."""
    try:
        variables = json.loads(content)["containerEdits"]["env"]
        matches = [_CLAIM_VARIABLE.fullmatch(variable) for variable in variables]
    except (ValueError, KeyError, TypeError):
        return None
    match = next((match for match in matches if match), None)
    if match is None:
        return None
    return ClaimReference(match["uid"].replace("_", "-"), match["namespace"], match["name"])


def driver_edits(files: DriverFiles, control_nodes: tuple[DeviceNode, ...]) -> ContainerEdits:
    """Gives what every container with a GPU needs of the driver.

    With `nvidia-cdi-hook` libraries are where they are on the host, and hooks make links and the
    loader's cache in the container. Without it they are in a folder of their own, under each of
    their names, and LD_LIBRARY_PATH leads there.
    """
    others = tuple(
        Mount(file.host_path, file.container_path)
        for file in (*files.binaries, *files.sockets, *files.firmware)
    )
    if files.hook is None:
        return ContainerEdits(
            env=(_VOID, f"LD_LIBRARY_PATH={_PRIVATE_LIBRARIES}"),
            device_nodes=control_nodes,
            mounts=(*_private_libraries(files.libraries), *others),
        )
    return ContainerEdits(
        env=(_VOID,),
        device_nodes=control_nodes,
        mounts=(*(Mount(lib.host_path, lib.container_path) for lib in files.libraries), *others),
        hooks=tuple(_hooks(files, files.hook)),
    )


def _private_libraries(libraries: Iterable[Library]) -> Iterable[Mount]:
    for library in libraries:
        for name in (PurePosixPath(library.container_path).name, *library.links):
            yield Mount(library.host_path, str(_PRIVATE_LIBRARIES / name))


def _hooks(files: DriverFiles, program: str) -> Iterable[Hook]:
    paths = [PurePosixPath(library.container_path) for library in files.libraries]
    links = [
        argument
        for path, library in zip(paths, files.libraries, strict=True)
        for link in library.links
        for argument in ("--link", f"{path.name}::{path.with_name(link)}")
    ]
    folders = [
        argument
        for folder in sorted({str(path.parent) for path in paths})
        for argument in ("--folder", folder)
    ]
    for arguments in (
        ("create-symlinks", *links),
        ("enable-cuda-compat", f"--host-driver-version={files.version}"),
        ("update-ldcache", *folders),
        ("disable-device-node-modification",),
    ):
        yield Hook("createContainer", program, (PurePosixPath(program).name, *arguments))


def _told(claim: NodeClaim, allocated: AllocatedDevice, device: Device) -> Iterable[str]:
    """The variables that tell a container which device it got for a request."""
    name = (
        f"CARINA_CLAIM_{_part(claim.uid)}_REQUEST_{_part(allocated.request)}"
        f"_DEVICE_{_part(allocated.device)}"
    )
    if allocated.share_id is not None:
        name += f"_SHARE_{_part(allocated.share_id)}"
    yield f"{name}={_cuda_name(device)}"
    if allocated.admin_access:
        yield f"{name}_ADMIN_ACCESS=true"


def _cuda_name(device: Device) -> str:
    """What CUDA_VISIBLE_DEVICES calls the device."""
    match device:
        case WholeGpu(gpu=gpu):
            return gpu.uuid
    assert_never(device)


def _device_name(claim: NodeClaim, allocated: AllocatedDevice) -> str:
    names = [claim.uid, allocated.request, allocated.device]
    if allocated.share_id is not None:
        names.append(allocated.share_id)
    return "claim-" + "_".join(_api_name(name) for name in names)


def _part(name: str) -> str:
    return _api_name(name).replace("-", "_")


def _api_name(name: str) -> str:
    if not _API_NAME.fullmatch(name):
        raise CdiSpecError(
            f"name {name!r}: the API's names are of small letters, digits and hyphens, with a "
            "letter or digit at each end"
        )
    return name
