"""`carina node`: has the plugin of a node let go of the NVIDIA driver, and take it up again."""

import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from carina_dra.cli.command import Command
from carina_dra.kube import configuration
from carina_dra.kube.api_resource import NODES, PODS, RESOURCE_CLAIMS, RESOURCE_SLICES
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch, Selection
from carina_dra.kube.connection import ConfigurationError
from carina_dra.kube.errors import ApiError, Forbidden, NotFound
from carina_dra.node_keys import EVICT_ALL, NodeKeys
from carina_dra.resource.errors import did_you_mean
from controller.commands.device_holders import DeviceHolder, device_holders
from controller.commands.input import print_error

__all__ = ["COMMAND"]

DONE: Final = 0
FAILED: Final = 1
WAITS: Final = 3

_NAME: Final = "node"
_DRIVER: Final = "gpu.carina.dev"
_REASON: Final = "carina node release"
_TIMEOUT: Final = 600.0
_POLL_SECONDS: Final = 1.0
_EXIT_CODES: Final = f"""\
release: taints the GPUs of the node, so that no pod gets them, and waits until no pod has them and
the plugin has closed the driver. Only then, modules of the driver can be unloaded, and GPUs reset.
restore: ends that, and waits until the GPUs are in service. docs/node-release.md says more.

exit codes:
  {DONE}  the node is released, or restored; with --dry-run, what would be done was printed
  {FAILED}  nothing was changed, or the Node cannot be read
  {WAITS}  it was asked for, and is not done within --timeout; the same command waits again
"""


class NodeError(ValueError):
    """A node cannot be released or restored."""


@dataclass(frozen=True, slots=True)
class _State:
    """What the plugin says on the Node."""

    phase: str | None
    released: bool
    message: str


def run(arguments: Namespace) -> int:
    """Releases or restores a node; errors go to standard error."""
    keys = NodeKeys(arguments.driver)
    try:
        with Client(configuration.find(None)) as client:
            node = _node(client, arguments.node)
            if arguments.verb == "release":
                return _release(client, node, keys, arguments)
            return _restore(client, node, keys, arguments)
    except (ApiError, ConfigurationError, NodeError) as error:
        print_error(_NAME, str(error))
        return FAILED


def _release(client: Client, node: Body, keys: NodeKeys, arguments: Namespace) -> int:
    name = node["metadata"]["name"]
    _check_driver(client, node, keys)
    if arguments.dry_run:
        print(f"node {name} would be released")
        for line in _waiting(_holders(client, keys, name), evict_all=arguments.evict_all):
            print(line)
        return DONE
    evict = EVICT_ALL if arguments.evict_all else None
    _annotate(client, name, {keys.release: arguments.reason, keys.release_evict: evict})
    print(f"node {name} is asked to release its GPUs")
    shown: tuple[str, ...] = ()
    deadline = time.monotonic() + arguments.timeout
    while True:
        state = _state(client.get(NODES, name), keys)
        if state.released:
            print(
                f"node {name} is released: the plugin has nothing of the NVIDIA driver open. When "
                f"you are done: carina node restore {name}"
            )
            return DONE
        holders = _holders(client, keys, name)
        lines = (
            f"phase: {state.phase or 'the plugin has not answered yet'}",
            *_waiting(holders, evict_all=arguments.evict_all),
        )
        _print_new(lines, shown)
        shown = lines
        if time.monotonic() >= deadline:
            return _not_done(name, "released", arguments, state)
        time.sleep(_POLL_SECONDS)


def _restore(client: Client, node: Body, keys: NodeKeys, arguments: Namespace) -> int:
    name = node["metadata"]["name"]
    if arguments.dry_run:
        asked = (node["metadata"].get("annotations") or {}).get(keys.release)
        why = "nobody has asked to release it" if asked is None else f"it is released for: {asked}"
        print(f"node {name} would be restored; {why}")
        return DONE
    _annotate(client, name, {keys.release: None, keys.release_evict: None})
    print(f"node {name} is asked to take its GPUs into service")
    shown: tuple[str, ...] = ()
    deadline = time.monotonic() + arguments.timeout
    while True:
        state = _state(client.get(NODES, name), keys)
        if state.phase is None:
            print(f"the GPUs of node {name} are in service")
            return DONE
        lines = (f"phase: {state.phase}: {state.message}",)
        _print_new(lines, shown)
        shown = lines
        if time.monotonic() >= deadline:
            return _not_done(name, "restored", arguments, state)
        time.sleep(_POLL_SECONDS)


def _not_done(name: str, what: str, arguments: Namespace, state: _State) -> int:
    if state.phase is None:
        why = (
            "no plugin of the driver answers: look at its pod on the node, and whether it is of a "
            "version that knows releases"
        )
    else:
        why = f"phase {state.phase}: {state.message}"
    print_error(_NAME, f"node {name} is not {what} after {arguments.timeout:g} s: {why}")
    return WAITS


def _node(client: Client, name: str) -> Body:
    try:
        if not name or "/" in name:  # no name, but another path of the API
            raise NodeError(_unknown(client, name))
        return client.get(NODES, name)
    except NotFound:
        raise NodeError(_unknown(client, name)) from None


def _unknown(client: Client, name: str) -> str:
    names = [node["metadata"]["name"] for node in client.list(NODES).items]
    return f"there is no node {name!r}; {did_you_mean(name, names) if names else 'there is none'}"


def _check_driver(client: Client, node: Body, keys: NodeKeys) -> None:
    """Refuses a driver that has no devices on the node. Raises NodeError."""
    name = node["metadata"]["name"]
    if _state(node, keys).phase is not None:
        return
    slices = client.list(RESOURCE_SLICES, Selection(fields=f"spec.nodeName={name}")).items
    drivers = sorted({found["spec"]["driver"] for found in slices})
    if keys.driver not in drivers:
        others = f"; name one of these with --driver: {', '.join(drivers)}" if drivers else ""
        raise NodeError(f"node {name} has no devices of driver {keys.driver}{others}")


def _annotate(client: Client, name: str, annotations: Mapping[str, str | None]) -> None:
    client.patch(NODES, name, MergePatch({"metadata": {"annotations": dict(annotations)}}))


def _state(node: Body, keys: NodeKeys) -> _State:
    annotations: Mapping[str, str] = node["metadata"].get("annotations") or {}
    conditions: list[dict[str, Any]] = (node.get("status") or {}).get("conditions") or []
    own = next((found for found in conditions if found["type"] == keys.released_condition), {})
    return _State(
        annotations.get(keys.release_phase), own.get("status") == "True", own.get("message", "")
    )


def _holders(client: Client, keys: NodeKeys, node: str) -> tuple[DeviceHolder, ...] | Forbidden:
    """Returns who holds devices, or why the user may not know."""
    try:
        claims = client.list(RESOURCE_CLAIMS).items
        pods = client.list(PODS, Selection(fields=f"spec.nodeName={node}")).items
    except Forbidden as error:
        return error
    return device_holders(claims, pods, driver=keys.driver, node=node)


def _waiting(holders: tuple[DeviceHolder, ...] | Forbidden, *, evict_all: bool) -> Iterator[str]:
    if isinstance(holders, Forbidden):
        yield f"the pods that have devices there are not known: {holders}"
        return
    for holder in holders:
        if holder.queue is not None:
            yield f"pod {holder.pod} of queue {holder.queue} has devices: Carina evicts it"
        elif evict_all:
            yield f"pod {holder.pod} without a queue has devices: Carina evicts it"
        else:
            yield (f"pod {holder.pod} without a queue has devices: delete it, or say --evict-all")


def _print_new(lines: tuple[str, ...], shown: tuple[str, ...]) -> None:
    for line in lines:
        if line not in shown:
            print(line, flush=True)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = -1.0
    if not 0 <= seconds < float("inf"):
        raise ArgumentTypeError(f"{text!r} is no number of seconds")
    return seconds


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument("verb", choices=("release", "restore"), help="what to do")
    parser.add_argument("node", metavar="NODE", help="name of the Node")
    parser.add_argument(
        "--reason", default=_REASON, help=f"why it is released, for others [{_REASON}]"
    )
    parser.add_argument(
        "--evict-all",
        action="store_true",
        help="with release: evict pods without a queue, too, as far as their budgets allow",
    )
    parser.add_argument(
        "--timeout",
        type=_seconds,
        default=_TIMEOUT,
        metavar="SECONDS",
        help=f"how long to wait [{_TIMEOUT:g}]",
    )
    parser.add_argument(
        "--driver", default=_DRIVER, metavar="NAME", help=f"the DRA driver [{_DRIVER}]"
    )
    parser.add_argument(
        "--dry-run", action="store_true", help="print what would be done, and do nothing"
    )


COMMAND: Final = Command(add_arguments=_add_arguments, run=run)
