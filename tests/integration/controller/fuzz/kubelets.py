"""Stands in for the kubelets of all nodes: pods run, and end when their grace period is over.

The pods of hostile namespaces ignore SIGTERM, so they take all of it. All others end at once.
"""

import heapq
import queue
import threading
import time
from collections.abc import Collection
from contextlib import suppress
from datetime import datetime
from typing import Final

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch, Preconditions
from carina_dra.kube.errors import ApiError
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated

_FAILING: Final = 10
"""Of so many hostile pods, one fails some seconds after it has started."""
_FAILS_AFTER: Final = 5.0
_RUNNING: Final = {"phase": "Running"}


class Kubelets:
    """Attends to the bound pods of a cluster."""

    def __init__(self, client: Client, stubborn: Collection[str]) -> None:
        """stubborn: the namespaces whose pods ignore SIGTERM."""
        self._client = client
        self._stubborn = stubborn
        self._pods: queue.SimpleQueue[Body | None] = queue.SimpleQueue()
        self._due: list[tuple[float, int, Body, bool]] = []
        self._pushed = 0
        self._reflector = Reflector(client, PODS, lambda body: body, on_change=self._changed)
        self._thread = threading.Thread(target=self._run, name="kubelets", daemon=True)

    def start(self) -> None:
        self._reflector.start()
        self._thread.start()

    def stop(self) -> None:
        self._reflector.stop()
        self._pods.put(None)
        self._thread.join()

    def _changed(self, change: ObjectChange[Body]) -> None:
        match change:
            case Created(_, body) | Updated(_, _, body):
                if body["spec"].get("nodeName"):
                    self._pods.put(body)
            case Removed():
                pass

    def _run(self) -> None:
        while True:
            wait = max(0.0, self._due[0][0] - time.time()) if self._due else None
            with suppress(queue.Empty):
                body = self._pods.get(timeout=wait)
                if body is None:
                    return
                with suppress(ApiError):  # the next change brings it again
                    self._attend(body)
            while self._due and self._due[0][0] <= time.time():
                _, _, body, fails = heapq.heappop(self._due)
                with suppress(ApiError):
                    if fails:
                        self._set_phase(body, {"phase": "Failed"})
                    else:
                        self._end(body)

    def _attend(self, body: Body) -> None:
        metadata, phase = body["metadata"], (body.get("status") or {}).get("phase")
        is_stubborn = metadata["namespace"] in self._stubborn
        if at := metadata.get("deletionTimestamp"):
            if is_stubborn and phase not in {"Succeeded", "Failed"}:
                with suppress(ValueError):  # beyond the year 9999
                    self._later(datetime.fromisoformat(at).timestamp(), body, fails=False)
            else:
                self._end(body)
        elif phase == "Pending":
            ready = {"type": "Ready", "status": "True"}
            others = [
                each for each in body["status"].get("conditions") or () if each["type"] != "Ready"
            ]
            self._set_phase(body, {**_RUNNING, "conditions": [*others, ready]})
            if is_stubborn and int(metadata["uid"][:8], 16) % _FAILING == 0:
                self._later(time.time() + _FAILS_AFTER, body, fails=True)

    def _later(self, at: float, body: Body, *, fails: bool) -> None:
        self._pushed += 1
        heapq.heappush(self._due, (at, self._pushed, body, fails))

    def _end(self, body: Body) -> None:
        metadata, phase = body["metadata"], (body.get("status") or {}).get("phase")
        if metadata.get("finalizers") and phase not in {"Succeeded", "Failed"}:
            # The pod stays, so what it has is free only when its containers are seen to have ended.
            self._set_phase(body, {"phase": "Failed"})
        self._client.delete(
            PODS,
            metadata["name"],
            namespace=metadata["namespace"],
            preconditions=Preconditions(uid=metadata["uid"]),
            grace_period_seconds=0,
        )

    def _set_phase(self, body: Body, status: Body) -> None:
        metadata = body["metadata"]
        self._client.patch(
            PODS,
            metadata["name"],
            MergePatch({"status": status}),
            namespace=metadata["namespace"],
            subresource="status",
        )
