"""`carina health --clear`: says on a Node that the faults of GPUs no longer count."""

import json
from collections.abc import Collection
from datetime import datetime
from typing import Any, Final

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.body import Body, resource_version_of
from carina_dra.kube.client import Client, MergePatch
from carina_dra.kube.errors import Conflict
from carina_dra.node_keys import NodeKeys

_ATTEMPTS: Final = 10


class ClearError(ValueError):
    """The faults cannot be cleared; the message says why."""


def clear_faults(
    client: Client, *, node: str, driver: str, uuids: Collection[str], at: datetime
) -> None:
    """Adds the GPUs to the annotation of the Node, and keeps what it says of others.

    Raises:
        ClearError: the annotation cannot be read, or others change the Node all the time.
        ApiError: the Node cannot be read or written.
    """
    key = NodeKeys(driver).faults_cleared
    for _ in range(_ATTEMPTS):
        body = client.get(NODES, node)
        times = _present(body, key, node) | dict.fromkeys(uuids, f"{at:%Y-%m-%dT%H:%M:%SZ}")
        changes = {
            "metadata": {
                "resourceVersion": resource_version_of(body),
                "annotations": {key: json.dumps(times, sort_keys=True)},
            }
        }
        try:
            client.patch(NODES, node, MergePatch(changes))
        except Conflict:
            continue
        return
    raise ClearError(f"Node {node}: others change it all the time; try again")


def _present(body: Body, key: str, node: str) -> dict[str, Any]:
    text = (body["metadata"].get("annotations") or {}).get(key)
    if text is None:
        return {}
    try:
        times = json.loads(text)
    except (ValueError, RecursionError):
        times = None
    if not isinstance(times, dict):
        raise ClearError(
            f"Node {node}: annotation {key} is no JSON object; remove it with kubectl annotate "
            f"node {node} {key}-"
        )
    return times
