"""An API server that tests can stop and start."""

import http.client
import ssl
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from simulation.kubernetes import process
from simulation.kubernetes.process import Process
from simulation.kubernetes.state import StateDirectory

_NAME = "kube-apiserver"
_START_TIMEOUT_S = 60.0


@dataclass(slots=True)
class ApiServer:
    """The API server of a control plane; each start uses the same command."""

    _state: StateDirectory
    _command: Sequence[str | Path]
    _port: int
    _tls: ssl.SSLContext
    _process: Process | None = field(default=None)

    @property
    def process(self) -> Process:
        """The running process.

        Raises:
            RuntimeError: the API server is stopped.
        """
        if self._process is None:
            raise RuntimeError(f"{_NAME} is stopped")
        return self._process

    def start(self, *, alive: Sequence[Process] = ()) -> None:
        """Starts the API server and waits until it is ready.

        Raises:
            ComponentDiedError: it exited during its start, or a process in `alive` did.
            NotReachedError: it did not become ready.
        """
        if self._process is not None:
            raise RuntimeError(f"{_NAME} is already running")
        self._process = process.start(self._state, _NAME, self._command)
        process.wait_for(
            "the API server to be ready",
            self._is_ready,
            timeout=_START_TIMEOUT_S,
            alive=(*alive, self._process),
            retry_on=(OSError, http.client.HTTPException),
        )

    def stop(self) -> None:
        """Stops the API server with SIGTERM; etcd keeps its data."""
        self.process.stop()
        self._process = None

    def kill(self) -> None:
        """Ends the API server at once: requests that it is answering get no answer."""
        self.process.popen.kill()
        self.process.popen.wait()
        self._process = None

    def _is_ready(self) -> bool:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self._port, context=self._tls, timeout=5
        )
        try:
            connection.request("GET", "/readyz")
            return connection.getresponse().status == http.HTTPStatus.OK
        finally:
            connection.close()
