"""A tenant to whom a quota is guaranteed that others borrow: it asks for it now and then."""

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from carina_dra.kube.api_resource import EVENTS, PODS, RESOURCE_CLAIM_TEMPLATES, RESOURCE_CLAIMS
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import ApiError
from controller.engine.model.queue import QUEUE_LABEL
from tests.integration.controller.fuzz.bystander import pod_body, template
from tests.integration.controller.fuzz.world import EVICTION_GRACE, OWNER, OWNER_QUOTA

_PAUSE: Final = 40.0
"""Seconds between two times at which it asks."""
BACK_WITHIN: Final = EVICTION_GRACE + 60.0
"""Seconds after which it must have its quota."""
_POLL: Final = 0.5


@dataclass(frozen=True, slots=True)
class Return:
    """A time at which it asked for its quota."""

    seconds: float
    """Until all of its pods were bound."""
    bound: int
    """How many were bound at the end of that time."""
    why: str = ""
    """What a pod that was not bound was told."""


class Owner:
    """Asks for its quota again and again. `run` is for a thread."""

    def __init__(self, client: Client) -> None:
        self.returns: list[Return] = []
        self.is_asking = False
        self._client = client
        self._stopping = threading.Event()

    def prepare(self) -> None:
        """Creates the template."""
        self._client.create(RESOURCE_CLAIM_TEMPLATES, template(OWNER, 1))

    def run(self) -> None:
        """Until it is stopped."""
        while not self._stopping.wait(_PAUSE):
            with suppress(ApiError):
                self._ask()

    def stop(self) -> None:
        """Has `run` return once it has its quota, or was not given it in time."""
        self._stopping.set()

    def _ask(self) -> None:
        began, self.is_asking = time.monotonic(), True
        try:
            for index in range(OWNER_QUOTA):
                name = f"o{len(self.returns)}-{index}"
                self._client.create(PODS, pod_body(OWNER, name, 1, {QUEUE_LABEL: OWNER}))
            created = time.monotonic()
            while (bound := self._bound()) < OWNER_QUOTA:
                if time.monotonic() > created + BACK_WITHIN:
                    break
                time.sleep(_POLL)
            why = self._why() if bound < OWNER_QUOTA else ""
            self.returns.append(Return(time.monotonic() - began, bound, why))
            self._client.delete_collection(PODS, Selection(OWNER))
            deadline = time.monotonic() + BACK_WITHIN
            while self._client.list(RESOURCE_CLAIMS, Selection(OWNER)).items:
                if time.monotonic() > deadline:
                    break
                time.sleep(_POLL)
        finally:
            self.is_asking = False

    def _why(self) -> str:
        events = self._client.list(EVENTS, Selection(OWNER)).items
        named = f"o{len(self.returns)}-"
        return "; ".join(
            f"{event['regarding']['name']}: {event.get('note', '')}"
            for event in events
            if event["regarding"].get("name", "").startswith(named)
        )

    def _bound(self) -> int:
        pods = self._client.list(PODS, Selection(OWNER)).items
        return sum(1 for pod in pods if pod["spec"].get("nodeName"))
