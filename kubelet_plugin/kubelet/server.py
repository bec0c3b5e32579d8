"""The gRPC server on the unix sockets that the kubelet connects to.

The server creates the socket files when it starts and removes them when it stops. The next process
removes those of a process that was killed, because the kubelet keeps trying to connect to them.
"""

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

_WORKERS = 1024
"""Calls served at a time; threads are created when they are needed. A call that waits for a device
keeps one. The kubelet has at most one call for each pod under way, and the largest nodes have 500
pods: this leaves room for the health probe, and for calls that the kubelet has given up."""
_CANCELLING = 1.0
"""Seconds that cancelled calls have to end."""


class UnixServer:
    """A gRPC server on several unix sockets; each serves all handlers, and all share threads."""

    def __init__(self, paths: Iterable[Path], handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Creates a server of `handlers`; `start` binds `paths` in their order."""
        self._paths = tuple(paths)
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="kubelet-call")
        self._server = grpc.server(self._pool, handlers=list(handlers))

    def start(self) -> None:
        """Starts serving.

        Raises:
            OSError: a file that has the path of a socket cannot be removed.
            RuntimeError: a socket cannot be bound, for example because its folder is missing.
        """
        for path in self._paths:
            path.unlink(missing_ok=True)
            self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def stop(self, grace: float) -> None:
        """Removes the sockets and refuses new calls; cancels others after `grace` seconds.

        A call that hangs in a driver is left behind.
        """
        for path in reversed(self._paths):
            path.unlink(missing_ok=True)
        self._server.stop(grace).wait(grace + _CANCELLING)
        self._pool.shutdown(wait=False)


def remove_abandoned_sockets(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Removes the sockets in `folder` matching `pattern` on which no process listens.

    Returns the paths that were removed.
    """
    removed = []
    for path in filter(Path.is_socket, sorted(folder.glob(pattern))):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(0)  # else a listener whose queue is full would keep it waiting
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                removed.append(path)
            except OSError:  # removed meanwhile, or listening but too busy
                continue
    return tuple(removed)
