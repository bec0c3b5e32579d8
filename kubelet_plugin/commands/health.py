"""`carina health`: the GPUs of the cluster that have a problem, and what to do about it."""

import sys
from argparse import ArgumentParser, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Final, TypeVar

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.kube import configuration
from carina_dra.kube.api_resource import NODES, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.body import Body, key_of
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, Forbidden, NotFound
from carina_dra.resource import DecodeError, ResourceClaim, ResourceSlice, decode
from kubelet_plugin.commands.faults_cleared import ClearError, clear_faults
from kubelet_plugin.commands.gpu_health import (
    GpuHealth,
    document,
    gpus_of,
    lines,
    with_claims,
    with_nodes,
)
from kubelet_plugin.node.view import NodeView, node_view

__all__ = ["COMMAND"]

PRINTED: Final = 0
FAILED: Final = 2
T = TypeVar("T")

_EXIT_CODES: Final = f"""\
exit codes:
  {PRINTED}  the GPUs were printed, or the faults are cleared
  {FAILED}  an argument is not valid, or the cluster cannot be read or written
"""


def run(arguments: Namespace) -> int:
    """Prints the health of the GPUs, or clears faults; errors go to standard error."""
    try:
        with Client(configuration.find(None)) as client:
            if arguments.clear:
                return _clear(client, arguments)
            gpus = _read(client, arguments.driver)
    except (ApiError, ClearError, ConfigurationError) as error:
        _say(str(error))
        return FAILED
    every: bool = arguments.all
    table = lines(gpus, every=every, now=datetime.now(UTC))
    print(render(OutputFormat(arguments.output), document=document(gpus), table=table))
    return PRINTED


def _read(client: Client, driver: str) -> tuple[GpuHealth, ...]:
    """Returns the GPUs of the cluster.

    What the user may not read is left out, and said on standard error.

    Raises:
        ApiError: the slices cannot be read.
    """
    gpus = _gpus(client, driver)
    claims = _optional(
        "the claims on the GPUs are not shown",
        lambda: _decoded(ResourceClaim, client.list(RESOURCE_CLAIMS).items),
    )
    views = _optional(
        "which faults were cleared is not shown", lambda: list(_views(client, driver))
    )
    return with_nodes(with_claims(gpus, claims, driver), dict(views))


def _gpus(client: Client, driver: str, node: str | None = None) -> tuple[GpuHealth, ...]:
    of_node = "" if node is None else f",spec.nodeName={node}"
    selection = Selection(fields=f"spec.driver={driver}{of_node}")
    return gpus_of(_decoded(ResourceSlice, client.list(RESOURCE_SLICES, selection).items), driver)


def _views(client: Client, driver: str) -> Iterator[tuple[str, NodeView]]:
    for body in client.list(NODES).items:
        yield key_of(body).name, node_view(body, driver)


def _optional(without: str, read: Callable[[], Sequence[T]]) -> Sequence[T]:
    try:
        return read()
    except Forbidden as error:
        _say(f"note: {without}: {error}")
        return ()


def _decoded(kind: type[T], bodies: Sequence[Body]) -> list[T]:
    """Returns the objects; one that cannot be read is left out, and said on standard error."""
    found = []
    for body in bodies:
        try:
            found.append(decode(kind, body))
        except DecodeError as error:
            _say(f"note: an object is left out: {error}")
    return found


def _clear(client: Client, arguments: Namespace) -> int:
    node, *named = arguments.clear
    if not named:
        raise ClearError("--clear: name the GPUs after the node, by UUID or as gpu-MINOR")
    driver: str = arguments.driver
    try:
        client.get(NODES, node)
    except NotFound as error:
        raise ClearError(f"--clear: there is no Node {node}") from error
    gpus = _gpus(client, driver, node)
    uuids = [_uuid(name, gpus, node) for name in named]
    at = datetime.now(UTC)
    clear_faults(client, node=node, driver=driver, uuids=uuids, at=at)
    print(
        f"faults of {', '.join(uuids)} that were first seen before {at:%Y-%m-%dT%H:%M:%SZ} no "
        f"longer count on {node}; a problem that persists comes back by itself"
    )
    return PRINTED


def _uuid(name: str, gpus: Sequence[GpuHealth], node: str) -> str:
    """Returns the UUID of the GPU that a user names.

    Raises:
        ClearError: the node has no such GPU.
    """
    for gpu in gpus:
        minor = gpu.gpu.removeprefix("gpu-")
        if gpu.uuid is not None and name in {gpu.uuid, gpu.gpu, minor}:
            return gpu.uuid
    known = ", ".join(f"{gpu.gpu} ({gpu.uuid})" for gpu in gpus if gpu.uuid is not None)
    raise ClearError(f"--clear: Node {node} has no GPU {name}; it has {known or 'none'}")


def _say(text: str) -> None:
    """Prints one line to standard error; names in objects may have any character."""
    line = "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )
    print(f"carina health: {line}", file=sys.stderr)


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument(
        "--all", action="store_true", help="show GPUs without a problem, too, in the table"
    )
    parser.add_argument(
        "--clear",
        nargs="+",
        metavar=("NODE", "GPU"),
        help="let the faults of these GPUs of the node that were seen until now no longer count; "
        "a GPU is a UUID, gpu-MINOR or MINOR",
    )
    parser.add_argument(
        "--driver",
        default="gpu.carina.dev",
        metavar="NAME",
        help="the DRA driver [%(default)s]",
    )
    add_output_argument(parser)


COMMAND: Final = Command(add_arguments=_add_arguments, run=run)
