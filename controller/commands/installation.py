"""An installation of Carina in a cluster, as `carina doctor` sees it."""

from dataclasses import dataclass
from datetime import datetime

from carina_dra.kube.client import Client


@dataclass(frozen=True, slots=True)
class Installation:
    """A cluster, and what Carina is called in it."""

    client: Client
    driver: str
    namespace: str
    plugin: str
    """Of the DaemonSet and its ServiceAccount."""
    controller: str
    """Of the Deployment, its ServiceAccount and its Lease."""
    patience: float


def seconds(timestamp: str) -> float:
    return datetime.fromisoformat(timestamp).timestamp()


def ago(seconds: float) -> str:
    if seconds == float("inf"):
        return "never"
    for unit, length in (("d", 86400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:.0f} {unit} ago"
    return f"{max(0.0, seconds):.0f} s ago"
