"""The two APIs that the contract is checked on, behind one face."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import urllib3

from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.kubeconfig import from_kubeconfig
from simulation.api_server.server import ApiServer
from tests.contract.kube.proxy import Proxy


class Backend(Protocol):
    """An API, whichever."""

    @property
    def connection(self) -> Connection:
        """How to reach it."""

    def forget_history(self) -> None:
        """Of Events, only the present is known from now on."""


@dataclass(frozen=True)
class Embedded:
    """The in-memory API."""

    server: ApiServer

    @property
    def connection(self) -> Connection:
        return self.server.connection

    def forget_history(self) -> None:
        self.server.api.storage.forget()


@dataclass(frozen=True)
class Real:
    """A kube-apiserver."""

    kubeconfig: Path
    etcd: str

    @property
    def connection(self) -> Connection:
        return from_kubeconfig(self.kubeconfig)

    def forget_history(self) -> None:
        """Compacts etcd, of which the API server asks for Events what it caches of the others."""
        with urllib3.PoolManager() as http:

            def ask(path: str, question: dict[str, object]) -> Any:
                answer = http.request("POST", f"{self.etcd}/v3/kv/{path}", json=question)
                assert answer.status == 200, answer.data
                return answer.json()

            present = ask("range", {"key": "Lw=="})["header"]["revision"]
            ask("compaction", {"revision": present, "physical": True})


@dataclass(frozen=True)
class ThroughProxy:
    """A client whose connections a test can disturb."""

    client: Client
    proxy: Proxy


def through_proxy(backend: Backend, proxy: Proxy) -> Connection:
    """The backend's connection, by way of a proxy to it."""
    scheme = backend.connection.server.partition("://")[0]
    return replace(backend.connection, server=f"{scheme}://127.0.0.1:{proxy.port}")
