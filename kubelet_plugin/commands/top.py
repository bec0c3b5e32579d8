"""`carina top`: what GPUs and their shares use, of what they are given."""

import queue
import sys
import threading
import time
from argparse import ArgumentParser, ArgumentTypeError, Namespace, RawDescriptionHelpFormatter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from carina_dra.cli.command import Command
from carina_dra.cli.output import OutputFormat, add_output_argument, render
from carina_dra.kube import configuration
from carina_dra.kube.api_resource import PODS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.connection import ConfigurationError, Connection
from carina_dra.kube.errors import ApiError, ApiOperation, Forbidden
from kubelet_plugin.commands.gpu_usage import (
    MetricsError,
    NodeUsage,
    document,
    lines,
    node_usage,
)

__all__ = ["COMMAND"]

PRINTED: Final = 0
FAILED: Final = 2
SOME_NOT_READ: Final = 3
_EXIT_CODES: Final = f"""\
exit codes:
  {PRINTED}  the use of all GPUs was printed
  {FAILED}  an argument is not valid, or nothing can be read
  {SOME_NOT_READ}  at least one node did not answer; it is named
"""
_PLUGINS: Final = "app.kubernetes.io/component=kubelet-plugin"
_METRICS: Final = "/metrics"
_MOST_BYTES: Final = 16 * 2**20
_AT_A_TIME: Final = 16
_PATIENCE: Final = 5.0
"""Seconds for one node."""
_CLEAR: Final = "\x1b[H\x1b[2J"
"""Goes to the upper left corner of a terminal, and erases it."""


class UsageUnreadableError(Exception):
    """Nothing can be read; the message says what to do."""


@dataclass(frozen=True, slots=True)
class ClusterUsage:
    """What the nodes say, and why others do not."""

    nodes: tuple[NodeUsage, ...]
    unreadable: Mapping[str, str]


def run(arguments: Namespace) -> int:
    """Prints the use of GPUs, once or until it is interrupted; errors go to standard error."""
    try:
        url: str | None = arguments.metrics_url
        connection = configuration.find(None) if url is None else _of_url(url)
        with Client(connection) as client:
            usage = _of_page(client, url) if url else _of_cluster(client, arguments)
            _print(usage, arguments)
            while arguments.watch:
                time.sleep(arguments.interval)
                try:
                    usage = _of_page(client, url) if url else _of_cluster(client, arguments)
                except (ApiError, MetricsError, UsageUnreadableError) as error:
                    _complain(error)  # it may be there again at the next look
                else:
                    _print(usage, arguments)
            return SOME_NOT_READ if usage.unreadable else PRINTED
    except (ApiError, ConfigurationError, MetricsError, UsageUnreadableError) as error:
        _complain(error)
        return FAILED


def _complain(error: Exception) -> None:
    print(f"carina top: {_printable(str(error))}", file=sys.stderr, flush=True)


def _print(usage: ClusterUsage, arguments: Namespace) -> None:
    text = render(
        OutputFormat(arguments.output),
        document=document(usage.nodes, usage.unreadable),
        table=lines(usage.nodes, usage.unreadable, time.time()),
    )
    clear = arguments.watch and sys.stdout.isatty()
    print(f"{_CLEAR}{text}" if clear else text, flush=True)


def _of_page(client: Client, url: str) -> ClusterUsage:
    """Returns what the plugin of one node says, without an API server."""
    address = urlsplit(url)
    path = address.path if address.path.strip("/") else _METRICS
    operation = ApiOperation("get", url)
    text = client.page(operation, path, most_bytes=_MOST_BYTES, timeout=_PATIENCE)
    return ClusterUsage((node_usage(address.hostname or url, _text(text)),), {})


def _of_cluster(client: Client, arguments: Namespace) -> ClusterUsage:
    """Returns what the plugins of a cluster say.

    Raises:
        UsageUnreadableError: no plugin can be read.
    """
    namespace: str = arguments.namespace
    pods = _plugins(client, namespace, arguments.node)

    def read(node: str) -> NodeUsage:
        name = pods[node]["metadata"]["name"]
        page = client.page_of_pod(
            namespace, name, _METRICS, most_bytes=_MOST_BYTES, timeout=_PATIENCE
        )
        return node_usage(node, _text(page))

    rounds = -(-len(pods) // _AT_A_TIME)
    found = _at_once(sorted(pods), read, seconds=2 * _PATIENCE * rounds)
    nodes = tuple(answer for answer in found.values() if isinstance(answer, NodeUsage))
    errors = {node: error for node, error in found.items() if not isinstance(error, NodeUsage)}
    if all(isinstance(error, Forbidden) for error in found.values()):
        raise UsageUnreadableError(_forbidden(next(iter(errors.values())), namespace))
    return ClusterUsage(nodes, {node: str(error) for node, error in errors.items()})


def _plugins(client: Client, namespace: str, node: str | None) -> Mapping[str, Body]:
    """Returns the pod of the plugin on each node: the one that became ready last.

    Raises:
        UsageUnreadableError: there is none, or the user may not list them.
    """
    of_node = "" if node is None else f"spec.nodeName={node}"
    try:
        pods = client.list(PODS, Selection(namespace, _PLUGINS, of_node)).items
    except Forbidden as error:
        raise UsageUnreadableError(_forbidden(error, namespace)) from error
    on_nodes = [pod for pod in pods if pod["spec"].get("nodeName")]
    if not on_nodes:
        where = f"namespace {namespace}" + ("" if node is None else f" on node {node}")
        raise UsageUnreadableError(
            f"there is no pod of the kubelet plugin in {where}; --namespace says where Carina is"
        )
    return {pod["spec"]["nodeName"]: pod for pod in sorted(on_nodes, key=_readiness)}


def _readiness(pod: Body) -> tuple[bool, str]:
    status = pod.get("status") or {}
    ready = [c for c in status.get("conditions") or () if c.get("type") == "Ready"]
    since = ready[0].get("lastTransitionTime") if ready else None
    return bool(ready) and ready[0].get("status") == "True", since or ""


def _at_once(
    nodes: list[str], read: Callable[[str], NodeUsage], *, seconds: float
) -> Mapping[str, NodeUsage | Exception]:
    """Returns the answers of all nodes after `seconds` at the latest; a few are asked at a time."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
    answers: queue.SimpleQueue[tuple[str, NodeUsage | Exception]] = queue.SimpleQueue()
    for node in nodes:
        waiting.put(node)

    def work() -> None:
        while True:
            try:
                node = waiting.get_nowait()
            except queue.Empty:
                return
            try:
                answers.put((node, read(node)))
            except Exception as error:  # noqa: BLE001 - the other nodes are read, and this is shown
                answers.put((node, error))

    for number in range(min(_AT_A_TIME, len(nodes))):
        threading.Thread(target=work, name=f"top-{number}", daemon=True).start()
    found: dict[str, NodeUsage | Exception] = dict.fromkeys(
        nodes, TimeoutError(f"no answer after {seconds:g} s")
    )
    deadline = time.monotonic() + seconds
    for _ in nodes:
        try:
            node, answer = answers.get(timeout=max(0.0, deadline - time.monotonic()))
        except queue.Empty:
            break
        found[node] = answer
    return found


def _forbidden(error: Exception, namespace: str) -> str:
    return (
        f"{error}. It needs list of pods and get of pods/proxy in namespace {namespace}: an "
        "administrator binds the Role carina-top there, or --metrics-url reads one node without "
        "the API server"
    )


def _of_url(url: str) -> Connection:
    address = urlsplit(url)
    return Connection(f"{address.scheme}://{address.netloc}")


def _text(content: bytes) -> str:
    return content.decode(errors="replace")


def _printable(text: str) -> str:
    return "".join(
        character if character.isprintable() else ascii(character)[1:-1] for character in text
    )


def _url(text: str) -> str:
    address = urlsplit(text)
    if address.scheme not in {"http", "https"} or not address.hostname:
        raise ArgumentTypeError(f"{text!r} is not a URL such as http://10.0.0.7:8080")
    return text


def _interval(text: str) -> float:
    seconds = float(text)
    if not 0.1 <= seconds <= 3600:
        raise ArgumentTypeError(f"{text} is not from 0.1 to 3600")
    return seconds


def _add_arguments(parser: ArgumentParser) -> None:
    parser.formatter_class = RawDescriptionHelpFormatter
    parser.epilog = _EXIT_CODES
    parser.add_argument("--node", metavar="NODE", help="show this node only")
    parser.add_argument(
        *("-n", "--namespace"),
        default="carina-system",
        metavar="NAMESPACE",
        help="where Carina is installed [%(default)s]",
    )
    parser.add_argument(
        "--metrics-url",
        type=_url,
        metavar="URL",
        help="read the plugin of one node at this URL, such as http://10.0.0.7:8080, and no "
        "cluster",
    )
    parser.add_argument(
        *("-w", "--watch"), action="store_true", help="show it again until it is interrupted"
    )
    parser.add_argument(
        "--interval",
        type=_interval,
        default=2.0,
        metavar="SECONDS",
        help="seconds between two looks of --watch [%(default)s]",
    )
    add_output_argument(parser)


COMMAND: Final = Command(add_arguments=_add_arguments, run=run)
