"""The connection of a program to the API server, by its settings."""

import threading
from collections.abc import Callable
from typing import TypeVar

from carina_dra.kube.configuration import find
from carina_dra.kube.connection import ConfigurationError, Connection
from carina_dra.kube.service_account import from_service_account
from carina_dra.process.settings import ClusterSettings, SettingsError

_SettingsT = TypeVar("_SettingsT", bound=ClusterSettings)


def connected(
    run: Callable[[_SettingsT, Connection, threading.Event], None],
) -> Callable[[_SettingsT, threading.Event], None]:
    """Returns what a program runs, for a `run` that gets the connection, too.

    It raises SettingsError if there is no way to reach the API server.
    """

    def connect_and_run(chosen: _SettingsT, stop: threading.Event) -> None:
        try:
            connection = _connection(chosen)
        except ConfigurationError as error:
            raise SettingsError(str(error)) from None
        run(chosen, connection, stop)

    return connect_and_run


def _connection(chosen: ClusterSettings) -> Connection:
    if chosen.kubeconfig is None:
        return from_service_account(chosen.service_account)
    return find(chosen.kubeconfig)
