"""Finds how this process reaches its API server, by the same rules as kubectl."""

import os
from collections.abc import Mapping
from pathlib import Path

from carina_dra.kube.connection import Connection
from carina_dra.kube.service_account import from_service_account


def find(kubeconfig: Path | None, *, environment: Mapping[str, str] = os.environ) -> Connection:
    """The connection to use.

    It is the kubeconfig file's where one is given, or that of the files that KUBECONFIG names.
    Otherwise, in a pod, it is the service account's; elsewhere it is that of ~/.kube/config.

    Raises:
        ConfigurationError: the message says what is missing.
    """
    if kubeconfig is None and (named := environment.get("KUBECONFIG")):
        kubeconfig = Path(named)
    if kubeconfig is None and environment.get("KUBERNETES_SERVICE_HOST"):
        return from_service_account(environment=environment)
    # Imported only here: the official client takes 10 MiB and 0.3 s, and the plugin runs on every
    # node, where its memory counts and its service account is all it needs.
    from carina_dra.kube.kubeconfig import from_kubeconfig  # noqa: PLC0415

    return from_kubeconfig(kubeconfig)
