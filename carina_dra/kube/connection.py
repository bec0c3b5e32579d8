"""How an API server is reached, as values: its URL, whom to trust there, and the credentials.

A `Connection` does not change. What changes while a process runs (a token that is renewed, a
certificate file that is replaced) is behind `Credentials`, or read from its file for every new
connection. `configuration.find` gives the connection of this process.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias


class ConfigurationError(Exception):
    """No usable connection to an API server is configured; the message says what to do."""


class Credentials(Protocol):
    """Credentials other than a client certificate. Must be thread-safe."""

    def authorization(self) -> str | None:
        """The value of the Authorization header; None for no header."""

    def renew(self) -> bool:
        """Renews the credentials after the server refused them.

        Returns whether they have changed, so that the request may be repeated.
        """


class NoCredentials:
    """No Authorization header: a client certificate is used, or nothing."""

    def authorization(self) -> None:
        """No header."""

    def renew(self) -> bool:
        """There is nothing to renew."""
        return False


@dataclass(frozen=True, slots=True)
class SystemTrust:
    """Trust the certificate authorities of the operating system."""


@dataclass(frozen=True, slots=True)
class TrustFile:
    """Trust the certificate authorities of a PEM file."""

    path: Path


@dataclass(frozen=True, slots=True)
class TrustAnyone:
    """Do not verify the server: `insecure-skip-tls-verify` of a kubeconfig."""


Trust: TypeAlias = SystemTrust | TrustFile | TrustAnyone


@dataclass(frozen=True, slots=True)
class ClientCertificate:
    """PEM files of the client's certificate and its key."""

    certificate: Path
    key: Path


@dataclass(frozen=True, slots=True)
class Tls:
    """How a TLS connection is made. `server_name` is set if it is not the host of the URL."""

    trust: Trust = SystemTrust()
    client_certificate: ClientCertificate | None = None
    server_name: str | None = None


@dataclass(frozen=True, slots=True)
class Connection:
    """How to reach one API server. `server` is its URL, without a trailing slash."""

    server: str
    tls: Tls = Tls()
    credentials: Credentials = field(default_factory=NoCredentials)
    proxy: str | None = None
