"""The connection of a pod: with its service account, to the API server that its environment names.

https://kubernetes.io/docs/tasks/run-application/access-api-from-pod/#directly-accessing-the-rest-api
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

from carina_dra.kube.connection import ConfigurationError, Connection, Tls, TrustFile

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")

TOKEN_LIFETIME = 60.0
"""Seconds after which a token file is read again; the kubelet replaces it as it ages."""


def from_service_account(
    directory: Path = SERVICE_ACCOUNT_DIRECTORY,
    *,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """The connection of a pod, with its service account, to the API server of its cluster.

    Raises:
        ConfigurationError: this is not a pod, or a pod without a service account token.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigurationError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: outside of a pod,"
            " give a kubeconfig file"
        )
    authority = directory / "ca.crt"
    if not authority.is_file():
        raise ConfigurationError(
            f"service account: {authority} does not exist; is automountServiceAccountToken off?"
        )
    return Connection(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        tls=Tls(trust=TrustFile(authority)),
        credentials=TokenFile(directory / "token"),
    )


class TokenFile:
    """A bearer token in a file that the kubelet replaces from time to time."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token, self._read_at = self._read(), clock()

    def authorization(self) -> str:
        """The bearer token, read again from the file once it is older than a minute.

        If the file can no longer be read, the last token stays in use; the server decides whether
        it is still valid.
        """
        with self._lock:
            if self._clock() - self._read_at > TOKEN_LIFETIME:
                self._read_again()
            return f"Bearer {self._token}"

    def renew(self) -> bool:
        """Reads the file again. Returns whether its token has changed."""
        with self._lock:
            refused = self._token
            self._read_again()
            return self._token != refused

    def _read_again(self) -> None:
        with suppress(ConfigurationError):
            self._token = self._read()
        self._read_at = self._clock()

    def _read(self) -> str:
        try:
            token = self._path.read_text().strip()
        except OSError as error:
            raise ConfigurationError(f"service account token: {error}") from error
        if not token:
            raise ConfigurationError(f"service account token: {self._path} is empty")
        return token
