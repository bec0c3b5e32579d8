"""A controller in this process whose n-th write goes wrong, as often as a test wants it.

A write is a request that the plan of the controller leads to: a claim, a pod, or an eviction.
"""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIMS, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.errors import ApiOperation, Unreachable
from carina_dra.process.settings import load
from controller.main import lead
from controller.report.health import Health
from controller.report.metrics import ControllerMetrics
from controller.settings import Settings

_OF_PLANS: Final = frozenset({PODS, RESOURCE_CLAIMS})
_ENDS_WITHIN: Final = 10.0


class Fault(Enum):
    """What happens at a write."""

    DIES_BEFORE_THE_REQUEST = "dies before the request"
    DIES_BEFORE_THE_ANSWER = "dies before the answer"
    LOSES_THE_REQUEST = "loses the request"
    LOSES_THE_ANSWER = "loses the answer"

    @property
    def is_stored(self) -> bool:
        """Whether the API server stores what is written."""
        return self in {Fault.DIES_BEFORE_THE_ANSWER, Fault.LOSES_THE_ANSWER}

    @property
    def is_deadly(self) -> bool:
        """Whether the controller does nothing more."""
        return self in {Fault.DIES_BEFORE_THE_REQUEST, Fault.DIES_BEFORE_THE_ANSWER}


@dataclass(frozen=True, slots=True)
class FaultAt:
    """A fault at the n-th write, counted from 1."""

    number: int
    fault: Fault


class MortalController:
    """A controller that leads from `start` on, until it dies or is stopped."""

    def __init__(self, connection: Connection, fault: FaultAt | None = None) -> None:
        self._connection = connection
        self._fault = fault
        self._lock = threading.Lock()
        self._writes = 0
        self._struck = threading.Event()
        self._dead = threading.Event()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="controller", daemon=True)

    @property
    def struck(self) -> bool:
        """Whether the fault has happened."""
        return self._struck.is_set()

    @property
    def writes(self) -> int:
        """How many writes it has begun."""
        return self._writes

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Stops it, unless it is dead, and waits for its end."""
        self._stopping.set()
        self._thread.join(_ENDS_WITHIN)
        assert not self._thread.is_alive(), "the controller does not stop"

    def request(self, send: Callable[[], Body], resource: ApiResource) -> Body:
        """Sends a request, with the fault if it is its turn."""
        operation = ApiOperation.on("write", resource)
        if self._dead.is_set():
            raise Unreachable(operation, "the controller is dead")
        if resource not in _OF_PLANS or not self._is_turn():
            return send()
        assert self._fault is not None
        fault = self._fault.fault
        if fault.is_deadly:
            self._dead.set()
            self._stopping.set()
        try:
            if fault.is_stored:
                send()
        finally:
            self._struck.set()
        raise Unreachable(operation, fault.value)

    def _is_turn(self) -> bool:
        with self._lock:
            self._writes += 1
            return self._fault is not None and self._writes == self._fault.number

    def _run(self) -> None:
        flags = ["--identity=mortal", "--verdict-seconds=1"]
        chosen = load(Settings, flags, {}, program="mortal", version="0")
        lead(
            chosen,
            lambda: _MortalClient(self._connection, self),
            lambda: True,
            ControllerMetrics(),
            Health(),
            self._stopping,
            takes_over=True,
        )


class _MortalClient(Client):
    def __init__(self, connection: Connection, controller: MortalController) -> None:
        super().__init__(connection, user_agent="mortal")
        self._controller = controller

    def create(self, resource: ApiResource, body: Body, **more: Any) -> Body:
        return self._controller.request(
            lambda: super(_MortalClient, self).create(resource, body, **more), resource
        )

    def create_subresource(
        self, resource: ApiResource, name: str, subresource: str, body: Body, **more: Any
    ) -> Body:
        return self._controller.request(
            lambda: super(_MortalClient, self).create_subresource(
                resource, name, subresource, body, **more
            ),
            resource,
        )

    def patch(self, resource: ApiResource, name: str, patch: Any, **more: Any) -> Body:
        return self._controller.request(
            lambda: super(_MortalClient, self).patch(resource, name, patch, **more),
            resource,
        )


@contextmanager
def running(connection: Connection, fault: FaultAt | None = None) -> Iterator[MortalController]:
    """Runs a controller."""
    controller = MortalController(connection, fault)
    controller.start()
    try:
        yield controller
    finally:
        controller.stop()
