"""A tenant who has room: how long pods take from creation until all of a unit are bound."""

import threading
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from random import Random
from typing import Final

from carina_dra.kube.api_resource import PODS, RESOURCE_CLAIM_TEMPLATES
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, Selection
from carina_dra.kube.errors import ApiError, NotFound
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from controller.engine.model.queue import QUEUE_LABEL
from controller.names import GROUP_LABEL, POD_GROUPS
from tests.integration.controller.fuzz.judge import Judge
from tests.integration.controller.fuzz.world import BYSTANDER
from tests.integration.controller.live.site import GPU_CLASS

_SIZES: Final = (1, 2, 4)
"""GPUs of a pod."""
_INTERVAL: Final = 1.0
_RUNS: Final = 8.0
"""Seconds for which the pods of a unit run."""
_MOST_GPUS: Final = 50
"""Less than the quota."""
_MARGIN: Final = 3
"""There is room for a unit if there is room for so many of its size."""
BOUND_WITHIN: Final = 5.0
"""Seconds within which 99 of 100 units are to be bound."""
GIVEN_UP: Final = 60.0
"""Seconds after which a unit that is not bound is deleted."""


@dataclass(slots=True)
class Unit:
    """Pods that start together. Times are of the monotonic clock."""

    name: str
    pods: int
    gpus: int
    created: float
    bound: float | None = None
    counts: bool = True
    """Whether there was room for it."""

    @property
    def names(self) -> list[str]:
        """Those of its pods."""
        return [f"{self.name}-{index}" for index in range(self.pods)]

    @property
    def seconds(self) -> float:
        """From its creation until all of its pods were bound."""
        return GIVEN_UP if self.bound is None else self.bound - self.created


class Bystander:
    """Creates a unit each second, and deletes it after some seconds. `run` is for a thread."""

    def __init__(self, client: Client, judge: Judge, taken_back: Callable[[], int]) -> None:
        """taken_back: how many GPUs somebody is given back meanwhile who is guaranteed them."""
        self.units: list[Unit] = []
        self._client = client
        self._judge = judge
        self._taken_back = taken_back
        self._draw = Random(0)
        self._alive: deque[Unit] = deque()
        self._nodes: dict[str, float] = {}
        self._stopping = threading.Event()
        self._reflector = Reflector(
            client,
            PODS,
            lambda body: bool(body["spec"].get("nodeName")),
            selection=Selection(BYSTANDER),
            on_change=self._changed,
        )

    def prepare(self) -> None:
        """Creates the templates, and begins to watch."""
        for size in _SIZES:
            self._client.create(RESOURCE_CLAIM_TEMPLATES, template(BYSTANDER, size))
        self._reflector.start()
        assert self._reflector.wait_synced(30.0)

    def run(self) -> None:
        """Until it is stopped; then all that there was is deleted."""
        while not self._stopping.wait(_INTERVAL):
            with suppress(ApiError):
                self._create()
            self._look()
        deadline = time.monotonic() + GIVEN_UP
        while self._alive and time.monotonic() < deadline:
            self._look()
            time.sleep(_INTERVAL / 10)

    def stop(self) -> None:
        """Has `run` return once what it has created is bound."""
        self._stopping.set()

    def close(self) -> None:
        """Ends the watch."""
        self._reflector.stop()

    def take(self) -> list[Unit]:
        """The units since the last call that are bound, or were given up."""
        ended = [unit for unit in self.units if unit not in self._alive or unit.bound]
        self.units = [unit for unit in self.units if unit not in ended]
        return ended

    def _create(self) -> None:
        size, pods = self._draw.choice((1, 1, 2, 4)), self._draw.choice((1, 1, 2, 3))
        if sum(unit.gpus * unit.pods for unit in self._alive) + size * pods > _MOST_GPUS:
            return
        name = f"u{len(self._nodes)}-{time.monotonic_ns()}"
        labels = {QUEUE_LABEL: BYSTANDER, GROUP_LABEL: name}
        unit = Unit(name, pods, size, time.monotonic())
        unit.counts = self._has_room(unit)
        self._alive.append(unit)
        self.units.append(unit)
        group = {"apiVersion": POD_GROUPS.api_version, "kind": POD_GROUPS.kind}
        metadata = {"namespace": BYSTANDER, "name": name}
        self._client.create(POD_GROUPS, {**group, "metadata": metadata, "spec": {"minCount": pods}})
        for pod in unit.names:
            self._client.create(PODS, pod_body(BYSTANDER, pod, size, labels))

    def _look(self) -> None:
        now = time.monotonic()
        for unit in list(self._alive):
            if unit.bound is None and all(name in self._nodes for name in unit.names):
                unit.bound = max(self._nodes[name] for name in unit.names)
            if unit.bound is None and now - unit.created < BOUND_WITHIN:
                unit.counts &= self._has_room(unit)
            until = unit.created + GIVEN_UP if unit.bound is None else unit.bound + _RUNS
            if now >= until or (self._stopping.is_set() and unit.bound is not None):
                self._alive.remove(unit)
                self._delete(unit)

    def _has_room(self, unit: Unit) -> bool:
        """Whether there is more room than it needs, whatever the owner takes of it."""
        free = self._judge.free().values()
        places = sum(gpus // unit.gpus for gpus in free)
        return places >= _MARGIN * unit.pods + self._taken_back() // unit.gpus

    def _delete(self, unit: Unit) -> None:
        for name in unit.names:
            with suppress(NotFound):
                self._client.delete(PODS, name, namespace=BYSTANDER, grace_period_seconds=0)
        with suppress(NotFound):
            self._client.delete(POD_GROUPS, unit.name, namespace=BYSTANDER)

    def _changed(self, change: ObjectChange[bool]) -> None:
        match change:
            case Created(key, True) | Updated(key, _, True):
                self._nodes.setdefault(key.name, time.monotonic())
            case Created() | Updated() | Removed():
                pass


def template(namespace: str, gpus: int) -> Body:
    """A template of claims for whole GPUs; its name is `gpus-` with their number."""
    request = {"name": "gpus", "exactly": {"deviceClassName": GPU_CLASS, "count": gpus}}
    return {
        "apiVersion": RESOURCE_CLAIM_TEMPLATES.api_version,
        "kind": RESOURCE_CLAIM_TEMPLATES.kind,
        "metadata": {"namespace": namespace, "name": f"gpus-{gpus}"},
        "spec": {
            "metadata": {"labels": {QUEUE_LABEL: namespace}},
            "spec": {"devices": {"requests": [request]}},
        },
    }


def pod_body(namespace: str, name: str, gpus: int, labels: dict[str, str]) -> Body:
    """A pod with a claim from such a template."""
    resources = {"requests": {"cpu": "100m"}, "claims": [{"name": "g"}]}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"namespace": namespace, "name": name, "labels": labels},
        "spec": {
            "terminationGracePeriodSeconds": 0,
            "resourceClaims": [{"name": "g", "resourceClaimTemplateName": f"gpus-{gpus}"}],
            "containers": [{"name": "main", "image": "none", "resources": resources}],
        },
    }
