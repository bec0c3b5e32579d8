"""The gRPC server on unix sockets, as the kubelet expects it.

Socket files are made when the server starts and removed when it stops. One that a killed process
left behind is removed by whoever starts next: the kubelet would try to reach it for ever.
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


class UnixServer:
    """One gRPC server on several unix sockets: each serves all, and all share its threads."""

    def __init__(self, paths: Iterable[Path], handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Prepares to serve `handlers` at `paths`; `start` binds them, in their order."""
        self._paths = tuple(paths)
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="kubelet-call")
        self._server = grpc.server(pool, handlers=list(handlers))

    def start(self) -> None:
        """Serves from now on.

        Raises:
            OSError: what has a socket's name already cannot be removed.
            RuntimeError: a socket cannot be bound, say because its folder is missing.
        """
        for path in self._paths:
            path.unlink(missing_ok=True)
            self._server.add_insecure_port(f"unix:{path}")
        self._server.start()

    def stop(self, grace: float) -> None:
        """Takes no more calls, gives those under way `grace` seconds, and removes the sockets."""
        for path in reversed(self._paths):
            path.unlink(missing_ok=True)
        self._server.stop(grace).wait()


def remove_abandoned_sockets(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Removes the sockets in `folder` matching `pattern` on which nobody listens; gives them."""
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
