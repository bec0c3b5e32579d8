"""Where the API server is, whom to trust there, and how to say who we are.

A `Connection` is a value; what changes while a process runs (a token that is renewed, a certificate
file that is replaced) is behind `Credentials` or read from its file for every new connection.
"""

import os
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

SERVICE_ACCOUNT_DIRECTORY = Path("/var/run/secrets/kubernetes.io/serviceaccount")

TOKEN_LIFETIME = 60.0
"""Seconds after which a token file is read again; the kubelet replaces it as it ages."""


class ConfigurationError(Exception):
    """The configuration does not say how to reach an API server; the message says what to do."""


class Credentials(Protocol):
    """What proves who we are, apart from client certificates. Used by many threads at once."""

    def authorization(self) -> str | None:
        """The value of the Authorization header, None for no header."""

    def renew(self) -> bool:
        """Gets new ones after the server refused these; whether trying again makes sense."""


class NoCredentials:
    """No Authorization header: a client certificate, or nothing at all, does."""

    def authorization(self) -> None:
        """No header."""

    def renew(self) -> bool:
        """There is nothing to renew."""
        return False


class TokenFile:
    """A bearer token in a file that is replaced from time to time."""

    def __init__(self, path: Path, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._path = path
        self._clock = clock
        self._lock = threading.Lock()
        self._token, self._read_at = self._read(), clock()

    def authorization(self) -> str:
        """The bearer token, from the file once it is older than a minute.

        A file that cannot be read any more leaves the last token in use: the server is the judge.
        """
        with self._lock:
            if self._clock() - self._read_at > TOKEN_LIFETIME:
                self._read_again()
            return f"Bearer {self._token}"

    def renew(self) -> bool:
        """Reads the file again; whether its token is another."""
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


@dataclass(frozen=True, slots=True)
class SystemTrust:
    """Trust the certificate authorities that this system trusts."""


@dataclass(frozen=True, slots=True)
class TrustFile:
    """Trust the certificate authorities of a PEM file."""

    path: Path


@dataclass(frozen=True, slots=True)
class TrustAnyone:
    """Do not verify the server: what a kubeconfig's `insecure-skip-tls-verify` asks for."""


Trust: TypeAlias = SystemTrust | TrustFile | TrustAnyone


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM files of the certificate that we present and of its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Tls:
    """How a TLS connection is made. `server_name`: where it is not the host of the URL."""

    trust: Trust = SystemTrust()
    client_certificate: ClientCertificate | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """How to talk to one API server. `server` is its URL, without a trailing slash."""

    server: str
    tls: Tls = Tls()
    credentials: Credentials = field(default_factory=NoCredentials)
    proxy: str | None = None


def from_service_account(
    directory: Path = SERVICE_ACCOUNT_DIRECTORY,
    *,
    environment: Mapping[str, str] = os.environ,
) -> Connection:
    """The connection of a pod: by its service account, to the API server its environment names.

    Raises ConfigurationError where this is no pod, or one without a service account token.
    """
    host = environment.get("KUBERNETES_SERVICE_HOST")
    port = environment.get("KUBERNETES_SERVICE_PORT")
    if not host or not port:
        raise ConfigurationError(
            "KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set: outside of a cluster,"
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


def find(kubeconfig: Path | None, *, environment: Mapping[str, str] = os.environ) -> Connection:
    """The connection to use where the user names a kubeconfig file, or leaves it to us.

    As kubectl has it: the file that is named, else the pod's service account, else what KUBECONFIG
    names, else ~/.kube/config. Raises ConfigurationError.
    """
    if kubeconfig is None and environment.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(environment=environment)
    from carina_dra.kube.kubeconfig import from_kubeconfig  # noqa: PLC0415 - 10 MiB and 0.3 s

    return from_kubeconfig(kubeconfig)
