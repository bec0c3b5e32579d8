"""Stands in for the kubelets of nodes that do not exist: pods there run, and end when deleted."""

import queue
import threading
from contextlib import suppress

from carina_dra.kube.api_resource import PODS
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch, Preconditions
from carina_dra.kube.errors import ApiError, NotFound
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated


class HollowKubelet:
    """Has every bound pod run, and every one that is deleted be gone after `release`.

    With `ends_at_once`, it is gone at once.
    """

    def __init__(self, client: Client) -> None:
        self._client = client
        self._work: queue.SimpleQueue[Body | None] = queue.SimpleQueue()
        self._reflector = Reflector(client, PODS, lambda body: body, on_change=self._changed)
        self._thread = threading.Thread(target=self._run, name="hollow-kubelet", daemon=True)
        self._kept: set[tuple[str, str]] = set()

    def start(self) -> None:
        self._reflector.start()
        self._thread.start()

    def stop(self) -> None:
        self._reflector.stop()
        self._work.put(None)
        self._thread.join()

    def keep(self, namespace: str, name: str) -> None:
        """Has a pod not end when it is deleted."""
        self._kept.add((namespace, name))

    def release(self, namespace: str, name: str) -> None:
        """Has a pod end that was kept."""
        self._kept.discard((namespace, name))
        with suppress(NotFound):
            self._work.put(self._client.get(PODS, name, namespace=namespace))

    def end(self, namespace: str, name: str, phase: str) -> None:
        """Has the containers of a pod end; the pod is there until it is deleted."""
        self._client.patch(
            PODS,
            name,
            MergePatch({"status": {"phase": phase}}),
            namespace=namespace,
            subresource="status",
        )

    def _changed(self, change: ObjectChange[Body]) -> None:
        match change:
            case Created(_, body) | Updated(_, _, body):
                if body["spec"].get("nodeName"):
                    self._work.put(body)
            case Removed():
                pass

    def _run(self) -> None:
        while (body := self._work.get()) is not None:
            with suppress(ApiError):  # the next change brings it again
                self._attend(body)

    def _attend(self, body: Body) -> None:
        metadata, status = body["metadata"], body.get("status") or {}
        namespace, name = metadata["namespace"], metadata["name"]
        if metadata.get("deletionTimestamp"):
            if (namespace, name) not in self._kept:
                self._client.delete(
                    PODS,
                    name,
                    namespace=namespace,
                    preconditions=Preconditions(uid=metadata["uid"]),
                    grace_period_seconds=0,
                )
        elif status.get("phase") == "Pending":
            others = [each for each in status.get("conditions") or () if each["type"] != "Ready"]
            ready = {"type": "Ready", "status": "True"}
            running = {"phase": "Running", "conditions": [*others, ready]}
            self._client.patch(
                PODS,
                name,
                MergePatch({"status": running}),
                namespace=namespace,
                subresource="status",
            )
