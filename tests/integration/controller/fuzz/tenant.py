"""The hostile tenant: writes the steps of the generator, within the bounds of what it may use."""

import json
import threading
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from carina_dra.kube.api_resource import PODS, ApiResource
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch, Selection
from carina_dra.kube.errors import ApiError, NotFound
from tests.integration.controller.fuzz import generator
from tests.integration.controller.fuzz.generator import Create, Delete, Step, Target

WRITES_PER_SECOND: Final = 20.0
MOST_OBJECTS: Final = 2_000
MOST_BYTES: Final = 200_000_000
_WRITERS: Final = 6
"""Threads, since the API server takes long for large objects."""
_REMEMBERED: Final = 100
"""Steps that are written to a file when the run fails."""


@dataclass(frozen=True, slots=True)
class _Owned:
    """An object that the tenant has created, with what controllers make of it."""

    resource: ApiResource
    namespace: str
    name: str
    objects: int
    size: int
    """Bytes, with those of the pods that controllers make."""


@dataclass(slots=True)
class Usage:
    """What the tenant has done so far."""

    steps: int = 0
    writes: int = 0
    accepted: Counter[str] = field(default_factory=Counter)
    """Objects that the API server accepted, by recipe."""
    refused: Counter[str] = field(default_factory=Counter)
    errors: dict[str, str] = field(default_factory=dict)
    """By recipe: why the API server refused an object, the last time."""


class Tenant:
    """Writes with a token of the role `edit` in its namespaces. `run` is for a thread."""

    def __init__(self, client: Client, seed: int, targets: Sequence[Target]) -> None:
        """`client` has the token of the tenant."""
        self.usage = Usage()
        self._client = client
        self._seed = seed
        self._targets = targets
        self._owned: list[_Owned] = []
        self._objects = self._bytes = 0
        self._last: deque[Step] = deque(maxlen=_REMEMBERED)
        self._lock = threading.Lock()
        self._stopping = threading.Event()
        self._next = 0.0

    def run(self) -> None:
        """Writes until it is stopped."""
        with ThreadPoolExecutor(_WRITERS) as writers:
            for working in [writers.submit(self._work) for _ in range(_WRITERS)]:
                working.result()

    def _work(self) -> None:
        while not self._stopping.is_set():
            with self._lock:
                step = self._step(self.usage.steps)
                self.usage.steps += 1
                self._last.append(step)
            match step:
                case Create():
                    self._create(step)
                case Delete():
                    self._delete(step)

    def stop(self) -> None:
        """Has `run` return."""
        self._stopping.set()

    def write_last(self, path: Path) -> None:
        """Writes the seed and the last steps to a file."""
        steps = [
            {
                "index": step.index,
                "recipe": step.recipe,
                "objects": [body for _, body in step.objects],
            }
            if isinstance(step, Create)
            else {"index": step.index, "delete": step.resource.plural, "grace": step.grace}
            for step in list(self._last)
        ]
        path.write_text(json.dumps({"seed": self._seed, "steps": steps}, indent=1))

    def _step(self, index: int) -> Step:
        return generator.step(self._seed, index, self._targets[index % len(self._targets)])

    def _create(self, step: Create) -> None:
        size = sum(len(json.dumps(body)) for _, body in step.objects) * max(1, step.made)
        number = len(step.objects) + step.made
        while self._objects + number > MOST_OBJECTS or self._bytes + size > MOST_BYTES:
            if not self._owned or self._stopping.is_set():
                return
            with suppress(IndexError):  # another thread was faster
                self._remove(self._owned[0], grace=0)
        for resource, body in step.objects:
            self._await_turn()
            try:
                self._client.create(resource, body)
            except (ApiError, ValueError) as error:
                self.usage.refused[step.recipe] += 1
                self.usage.errors[step.recipe] = str(error)[:400]
                continue
            self.usage.accepted[step.recipe] += 1
            metadata = body["metadata"]
            of_step = step.made if resource.group in {"batch", "apps"} else resource is PODS
            self._own(
                _Owned(
                    resource,
                    metadata["namespace"],
                    metadata["name"],
                    1 + int(of_step),
                    len(json.dumps(body)) * max(1, int(of_step)),
                )
            )

    def _delete(self, step: Delete) -> None:
        """Deletes an object that it created, or a pod or claim that a controller made."""
        mine = [each for each in list(self._owned) if each.resource == step.resource]
        if mine:
            self._remove(mine[int(step.choice * len(mine))], grace=step.grace)
            return
        namespace = self._targets[step.index % len(self._targets)].namespace
        try:
            made = self._client.list(step.resource, Selection(namespace)).items
        except ApiError as error:
            self.usage.errors["list"] = str(error)[:400]
            return
        if made:
            metadata = made[int(step.choice * len(made))]["metadata"]
            owned = _Owned(step.resource, namespace, metadata["name"], 0, 0)
            self._remove(owned, grace=step.grace)

    def _remove(self, owned: _Owned, *, grace: int | None) -> None:
        self._await_turn()
        try:
            self._client.delete(
                owned.resource,
                owned.name,
                namespace=owned.namespace,
                grace_period_seconds=grace,
            )
            if owned.resource is PODS:
                self._let_go(owned)
        except NotFound:
            pass
        except ApiError as error:
            self.usage.errors["delete"] = str(error)[:400]
        with self._lock:
            if owned in self._owned:
                self._owned.remove(owned)
                self._objects -= owned.objects
                self._bytes -= owned.size

    def _let_go(self, owned: _Owned) -> None:
        """Removes the tenant's own finalizer, which outlives the deletion for a while."""
        self._await_turn()
        patch = MergePatch({"metadata": {"finalizers": None}})
        self._client.patch(PODS, owned.name, patch, namespace=owned.namespace)

    def _own(self, owned: _Owned) -> None:
        with self._lock:
            self._owned.append(owned)
            self._objects += owned.objects
            self._bytes += owned.size

    def _await_turn(self) -> None:
        """Keeps the rate of writes."""
        with self._lock:
            now = time.monotonic()
            turn = max(self._next, now)
            self._next = turn + 1 / WRITES_PER_SECOND
            self.usage.writes += 1
        self._stopping.wait(turn - now)


def body_of(seed: int, index: int, targets: Sequence[Target]) -> Mapping[str, object]:
    """The step of an index, to look at it."""
    step = generator.step(seed, index, targets[index % len(targets)])
    if isinstance(step, Delete):
        return {"delete": step.resource.plural, "choice": step.choice, "grace": step.grace}
    objects: list[Body] = [body for _, body in step.objects]
    return {"recipe": step.recipe, "objects": objects}
