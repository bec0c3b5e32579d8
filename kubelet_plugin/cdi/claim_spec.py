"""The CDI spec of a claim: what its containers get, and the variables that describe it.

Each claim has a file of its own, with a CDI device for each device allocated to one of its
requests. A container gets the CDI devices of the requests that it refers to. Names depend on the
claim only, so that the plugin can respond to the kubelet without reading the file. A name is never
reused for something else, since container runtimes cache specs.

The parts of a name must be separable. Names in the API (claim UIDs, requests, devices, share IDs)
consist of lowercase letters, digits and hyphens. Therefore CDI device names separate them with `_`,
and names of environment variables separate them with words in capitals and have `_` for each
hyphen. See docs/cdi.md.
"""

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from types import MappingProxyType

from carina_dra.config.enforcement import Levels
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
from kubelet_plugin.devices.device import GpuDevice
from kubelet_plugin.devices.share import Share, share_amounts

_API_NAME = re.compile(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?")
_CLAIM_VARIABLE = re.compile(
    r"CARINA_CLAIM_(?P<uid>[a-z0-9_]+)=(?P<namespace>[a-z0-9-]+)/(?P<name>[a-z0-9.-]+)"
)
_VOID = "NVIDIA_VISIBLE_DEVICES=void"
"""Prevents NVIDIA's container runtime, if it is the default runtime, from adding every GPU."""
_MPS_PIPES = "/run/carina-mps/pipe"
"""The folder of the MPS daemon's sockets in containers."""
_SHM = "/dev/shm"  # noqa: S108 - what every container has
_WRITABLE = ("rw", "nosuid", "nodev", "noexec", "rbind", "rprivate")
_PRIVATE_LIBRARIES = PurePosixPath("/usr/local/nvidia/lib64")
"""Folder of the driver's libraries in containers, if no hook can configure the loader. It contains
nothing else, so it can be searched first, and CUDA images already search it."""


@dataclass(frozen=True, slots=True)
class InjectedDevice:
    """A device as containers get it."""

    cuda_name: str
    """The name of the device in CUDA_VISIBLE_DEVICES."""
    nodes: tuple[DeviceNode, ...]
    limited: bool = False
    """Whether the driver keeps the pod within the memory of its share."""


@dataclass(frozen=True, slots=True)
class MpsFolders:
    """The folders of an MPS daemon, as the container runtime sees them."""

    pipe: str
    """With the sockets of the daemon."""
    shm: str
    """What daemon and clients have as /dev/shm."""


def cdi_kind(driver: str) -> str:
    """Returns the CDI kind of a driver's claims."""
    return f"{driver}/claim"


def cdi_device_id(driver: str, claim: NodeClaim, device: AllocatedDevice) -> str:
    """Returns the qualified CDI name of a claim's device, for the container runtime."""
    return f"{cdi_kind(driver)}={_device_name(claim, device)}"


def prepared_devices(driver: str, claim: NodeClaim) -> tuple[PreparedDevice, ...]:
    """Returns the devices of a prepared claim, as the kubelet receives them."""
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
    devices: Mapping[str, GpuDevice],
    injected: Mapping[str, InjectedDevice],
    shared: ContainerEdits,
    *,
    metadata: Mapping[str, Mount] = MappingProxyType({}),
    mps: MpsFolders | None = None,
) -> CdiSpec:
    """Returns the spec of a claim.

    `devices` and `injected` contain each device that the claim has allocated, by name. `shared` is
    added to every container with one of them. `metadata` has the mount of the file with device
    metadata of each request, if containers get it; it is added with the request's first device,
    since a container gets all devices of a request. `mps` has the folders of the claim's MPS
    daemon, if it has one.

    Raises:
        CdiSpecError: a name does not follow the API's rules, or a share has no amounts.
    """
    first = {device.request: device for device in reversed(claim.devices)}
    return CdiSpec(
        kind=cdi_kind(driver),
        devices=tuple(
            CdiDevice(
                _device_name(claim, allocated),
                _device_edits(
                    claim,
                    allocated,
                    devices[allocated.device],
                    injected[allocated.device],
                    metadata.get(allocated.request)
                    if allocated is first[allocated.request]
                    else None,
                    mps if allocated.uses_mps else None,
                ),
            )
            for allocated in claim.devices
        ),
        edits=ContainerEdits(
            env=(
                *shared.env,
                f"CARINA_CLAIM_{_variable_part(claim.uid)}={claim.namespace}/{claim.name}",
            ),
            device_nodes=shared.device_nodes,
            mounts=shared.mounts,
            hooks=shared.hooks,
        ),
    )


def _device_edits(
    claim: NodeClaim,
    allocated: AllocatedDevice,
    device: GpuDevice,
    injected: InjectedDevice,
    metadata: Mount | None,
    mps: MpsFolders | None,
) -> ContainerEdits:
    """Returns the edits of one device.

    Those of MPS are the same for all devices of a claim, and a container has them once.
    """
    env = tuple(_variables(claim, allocated, device, injected, mps=mps is not None))
    mounts = () if metadata is None else (metadata,)
    if mps is not None:
        env = (*env, f"CUDA_MPS_PIPE_DIRECTORY={_MPS_PIPES}")
        mounts = (
            *mounts,
            Mount(mps.pipe, _MPS_PIPES, _WRITABLE),
            Mount(mps.shm, _SHM, _WRITABLE),
        )
    return ContainerEdits(env=env, device_nodes=injected.nodes, mounts=mounts)


def claim_of(content: bytes) -> ClaimReference | None:
    """Returns the claim that a spec names; None if the spec is damaged or not of this driver."""
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
    """Returns the edits that give a container the files and control nodes of the driver.

    With `nvidia-cdi-hook`, libraries have the same paths as on the host, and hooks create links and
    the loader's cache in the container. Without it, libraries are mounted into a separate folder,
    under each of their names, and LD_LIBRARY_PATH contains this folder.
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


def _variables(
    claim: NodeClaim,
    allocated: AllocatedDevice,
    device: GpuDevice,
    injected: InjectedDevice,
    *,
    mps: bool,
) -> Iterable[str]:
    """Returns the variables that tell a container which device it has for a request."""
    name = (
        f"CARINA_CLAIM_{_variable_part(claim.uid)}_REQUEST_{_variable_part(allocated.request)}"
        f"_DEVICE_{_variable_part(allocated.device)}"
    )
    if allocated.share_id is not None:
        name += f"_SHARE_{_variable_part(allocated.share_id)}"
    yield f"{name}={injected.cuda_name}"
    if allocated.admin_access:
        yield f"{name}_ADMIN_ACCESS=true"
    elif isinstance(device, Share):
        levels = device.levels_in_force(limited=injected.limited, mps=mps)
        yield from _limits(name, allocated, levels)


def _limits(name: str, allocated: AllocatedDevice, levels: Levels) -> Iterable[str]:
    """Returns the variables that tell a container how much of the GPU it has, and what limits it.

    A container with admin access has none: it sees the GPU and has no share of it.
    """
    amounts = share_amounts(allocated.consumed_capacity)
    if amounts is None:
        raise CdiSpecError(
            f"device {allocated.device} of request {allocated.request} has no amounts of memory "
            "and cores in consumedCapacity; delete the pod so that it gets a share"
        )
    yield f"{name}_MEMORY_MIB={amounts.memory_mib}"
    yield f"{name}_MEMORY_ENFORCEMENT={levels.strongest_memory}"
    yield f"{name}_CORES_PERCENT={amounts.cores}"
    yield f"{name}_CORE_ENFORCEMENT={levels.strongest_cores}"


def _device_name(claim: NodeClaim, allocated: AllocatedDevice) -> str:
    names = [claim.uid, allocated.request, allocated.device]
    if allocated.share_id is not None:
        names.append(allocated.share_id)
    return "claim-" + "_".join(_api_name(name) for name in names)


def _variable_part(name: str) -> str:
    return _api_name(name).replace("-", "_")


def _api_name(name: str) -> str:
    if not _API_NAME.fullmatch(name):
        raise CdiSpecError(
            f"name {name!r} must consist of lowercase letters, digits and hyphens, and begin and "
            "end with a letter or digit"
        )
    return name
