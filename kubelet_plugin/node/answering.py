"""Writes the plugin's answer to a release on its Node: an annotation and a condition.

Nothing is written on a Node on which nobody has asked for a release.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, JsonPatch, MergePatch
from carina_dra.kube.timestamp import timestamp
from carina_dra.node_keys import NodeKeys
from kubelet_plugin.node.release import ReleaseAnswer

_SAME: Final = ("status", "reason", "message")


class NodeAnswer:
    """The answer on the Node. Not thread-safe."""

    def __init__(self, client: Client, *, node: str, driver: str, now: Callable[[], float]) -> None:
        """`now` returns Unix seconds."""
        self._client = client
        self._node = node
        self._keys = NodeKeys(driver)
        self._now = now
        self._written: ReleaseAnswer | None = None

    def write(self, wanted: ReleaseAnswer) -> None:
        """Makes the Node say it, unless this was written last.

        Raises ApiError: the Node cannot be read or written, or has changed meanwhile.
        """
        if wanted == self._written:
            return
        node = self._client.get(NODES, self._node)
        # The condition first: without the annotation, a release is over.
        self._write_condition(node, wanted)
        annotations: Mapping[str, str] = node["metadata"].get("annotations") or {}
        if annotations.get(self._keys.release_phase) != wanted.phase:
            change = {"metadata": {"annotations": {self._keys.release_phase: wanted.phase}}}
            self._client.patch(NODES, self._node, MergePatch(change))
        self._written = wanted

    def _write_condition(self, node: Body, wanted: ReleaseAnswer) -> None:
        conditions: Sequence[Mapping[str, Any]] = node.get("status", {}).get("conditions") or ()
        place = _place(conditions, self._keys.released_condition)
        if place is None and wanted.phase is None:
            return  # nobody has ever asked
        at = timestamp(self._now())
        condition = {
            "type": self._keys.released_condition,
            "status": str(wanted.released),
            "reason": wanted.reason,
            "message": wanted.message,
            "lastHeartbeatTime": at,
            "lastTransitionTime": at,
        }
        if place is None:
            operations = [_added(node, condition)]
        else:
            before = conditions[place]
            if all(before.get(name, "") == condition[name] for name in _SAME):
                return
            if before["status"] == condition["status"]:
                condition["lastTransitionTime"] = before["lastTransitionTime"]
            path = f"/status/conditions/{place}"
            operations = [
                # The kubelet may have changed the list meanwhile.
                {"op": "test", "path": f"{path}/type", "value": self._keys.released_condition},
                {"op": "replace", "path": path, "value": condition},
            ]
        self._client.patch(NODES, self._node, JsonPatch(operations), subresource="status")


def _added(node: Body, condition: Body) -> Body:
    """Returns the operation that adds a condition; a Node without a kubelet may have none."""
    status: Mapping[str, Any] | None = node.get("status")
    if status is None:
        return {"op": "add", "path": "/status", "value": {"conditions": [condition]}}
    if not status.get("conditions"):
        return {"op": "add", "path": "/status/conditions", "value": [condition]}
    return {"op": "add", "path": "/status/conditions/-", "value": condition}


def _place(conditions: Sequence[Mapping[str, Any]], kind: str) -> int | None:
    found = (place for place, condition in enumerate(conditions) if condition["type"] == kind)
    return next(found, None)
