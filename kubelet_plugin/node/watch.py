"""Watches the plugin's own Node: one object, by a field selector."""

import threading
from collections.abc import Callable

from carina_dra.kube.api_resource import NODES
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from kubelet_plugin.node.view import InvalidAnnotation, NodeView, node_view


class NodeWatch:
    """What the own Node asks of the plugin, while the process runs. Thread-safe."""

    def __init__(
        self,
        client: Client,
        *,
        node: str,
        driver: str,
        invalid: Callable[[InvalidAnnotation], None],
    ) -> None:
        """`invalid` is told of an annotation that is ignored, once until it changes."""
        self._invalid = invalid
        self._reported: frozenset[InvalidAnnotation] = frozenset()
        self._listeners: list[Callable[[NodeView], None]] = []
        self._state = threading.Lock()
        self._latest: NodeView | None = None
        self._reflector = Reflector(
            client,
            NODES,
            lambda body: node_view(body, driver),
            selection=Selection(fields=f"metadata.name={node}"),
            on_change=self._take,
        )

    @property
    def latest(self) -> NodeView | None:
        """What the Node asks for; None until it was read.

        If the API server cannot be reached, or the Node is deleted, it is what was last read.
        """
        return self._latest

    def listen(self, changed: Callable[[NodeView], None]) -> None:
        """Has `changed` called with the first view and each that differs; before `start`.

        It is called by the watch's thread, and must return at once.
        """
        self._listeners.append(changed)

    def start(self) -> None:
        """Starts to watch."""
        self._reflector.start()

    def stop(self, *, timeout: float = 5.0) -> None:
        """Stops, for at most `timeout` seconds."""
        self._reflector.stop(timeout=timeout)

    def _take(self, change: ObjectChange[NodeView]) -> None:
        match change:
            case Created(value=view) | Updated(after=view):
                self._see(view)
            case Removed():
                pass  # the Node is created again with what its administrator wants

    def _see(self, view: NodeView) -> None:
        with self._state:
            changed = view != self._latest
            self._latest = view
        if not changed:
            return
        for annotation in view.invalid:
            if annotation not in self._reported:
                self._invalid(annotation)
        self._reported = frozenset(view.invalid)
        for listener in self._listeners:
            listener(view)
