"""gRPC servers on unix sockets, as the kubelet expects them.

A socket file is made when its server starts and removed when it stops. One that a killed process
left behind is removed by whoever starts next: the kubelet would try to reach it for ever.
"""

import socket
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import grpc

_WORKERS = 4


class UnixServer:
    """A gRPC server on one unix socket."""

    def __init__(self, path: Path, handlers: Iterable[grpc.GenericRpcHandler]) -> None:
        """Prepares to serve `handlers` at `path`; `start` binds it."""
        self._path = path
        self._handlers = list(handlers)
        self._server: grpc.Server | None = None

    def start(self) -> None:
        """Serves from now on.

        Raises:
            RuntimeError: the socket cannot be bound, say because its folder is missing.
        """
        self._path.unlink(missing_ok=True)
        pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix=self._path.stem)
        self._server = grpc.server(pool, handlers=self._handlers)
        self._server.add_insecure_port(f"unix:{self._path}")
        self._server.start()

    def stop(self, grace: float) -> None:
        """Takes no more calls, gives those under way `grace` seconds, and removes the socket."""
        if self._server is not None:
            self._server.stop(grace).wait()
            self._path.unlink(missing_ok=True)


def remove_abandoned_sockets(folder: Path, pattern: str) -> tuple[Path, ...]:
    """Removes the sockets in `folder` matching `pattern` on which nobody listens; gives them."""
    removed = []
    for path in sorted(folder.glob(pattern)):
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            try:
                probe.connect(str(path))
            except ConnectionRefusedError:
                path.unlink(missing_ok=True)
                removed.append(path)
            except (
                OSError
            ):  # not a socket, gone meanwhile, or too busy to answer: not ours to judge
                continue
    return tuple(removed)
