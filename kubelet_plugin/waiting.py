"""What the plugin is on a node without a GPU: a small process that waits for one.

The libraries of the plugin (gRPC, protobuf, pydantic, the API's client and NVML's binding) take
three quarters of its memory, on every node of a cluster. So the plugin replaces itself by this
process, with execve(2), until a GPU is plugged in or the driver is loaded, and this process
replaces itself by the plugin. Therefore this module imports only what is small.

SIGTERM and SIGINT are blocked and waited for.
"""

import argparse
import logging
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NoReturn, get_args

from carina_dra.process import logs
from carina_dra.process.execution import replace_by
from carina_dra.process.http_endpoint import HttpEndpoint
from carina_dra.process.termination import SIGNALS
from carina_dra.sharing.files import FILES
from kubelet_plugin.host import HostPaths

_LOOK_SECONDS: Final = 2.0
_UNBINDABLE: Final = 1

_log = logging.getLogger(__name__)


def has_work(host: HostPaths, plugin_directory: Path) -> bool:
    """Whether the node has a GPU or the driver, or the plugin has run on it before.

    In the second case there may be claims, ResourceSlices and MIG instances of the plugin. The
    files of carina-sharing say nothing: it runs on the same nodes.
    """
    if host.has_gpu():
        return True
    try:
        return any(file.name not in FILES for file in plugin_directory.iterdir())
    except FileNotFoundError:
        return False
    except OSError:
        return True  # the plugin reports the problem


def wait_instead(host: HostPaths, http_address: str, log_format: str, log_level: str) -> NoReturn:
    """Replaces the process by one that waits until the node has a GPU, and then starts it again."""
    replace_by(
        [
            *(sys.executable, "-P", "-m", __name__),
            *("--host-root", str(host.root), "--http-address", http_address),
            *("--log-format", log_format, "--log-level", log_level, "--"),
            *sys.orig_argv,
        ]
    )


def main(arguments: Sequence[str] | None = None) -> None:
    """Waits for a GPU; ends on SIGTERM and SIGINT. Exits with 1 if the address cannot be bound."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--host-root", type=Path, required=True)
    parser.add_argument("--http-address", required=True)
    parser.add_argument("--log-format", choices=get_args(logs.LogFormat), required=True)
    parser.add_argument("--log-level", required=True)
    parser.add_argument("command", nargs="+", help="what to run when there is a GPU")
    given = parser.parse_args(arguments)
    logs.configure(given.log_format, given.log_level)
    signal.pthread_sigmask(signal.SIG_BLOCK, SIGNALS)
    endpoint = None if given.http_address == "off" else _endpoint(given.http_address)
    _log.info("this node has no GPU; waiting for one")
    host = HostPaths(given.host_root)
    while not host.has_gpu():
        if signal.sigtimedwait(SIGNALS, _LOOK_SECONDS) is not None:
            return
    if endpoint is not None:
        endpoint.stop()
    _log.info("a GPU or the NVIDIA driver has appeared; starting the plugin")
    replace_by(given.command)


def _endpoint(address: str) -> HttpEndpoint:
    try:
        endpoint = HttpEndpoint(
            address,
            metrics=lambda: b"",
            content_type="text/plain; version=0.0.4; charset=utf-8",
            healthy=lambda: None,
            ready=lambda: None,
        )
    except OSError as error:
        print(f"http_address {address} cannot be bound: {error}", file=sys.stderr)
        raise SystemExit(_UNBINDABLE) from None
    endpoint.start()
    return endpoint


if __name__ == "__main__":
    main()
