"""The node, the kubelet and the API server around a claim's lifecycle, for tests to arrange."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from carina_dra.kube.api_resource import RESOURCE_CLAIMS
from carina_dra.kube.errors import (
    ApiError,
    ApiOperation,
)
from kubelet_plugin.claims.checkpoint_file import CheckpointFile
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.claims.failure import (
    ClaimError,
    ClaimFailure,
    NodeResourceFailed,
)
from kubelet_plugin.claims.kubelet_record import KubeletRecord, UnreadableRecord
from kubelet_plugin.claims.lifecycle import ClaimLifecycle
from kubelet_plugin.claims.lock import FileLock
from tests.fakes.claims import PATIENT, FakePreparer, FakeReporter
from tests.fakes.lifecycle import lifecycle
from tests.samples import resource_failures
from tests.samples.claims import UID

DRIVER, NODE = "gpu.carina.dev", "node-1"
TRAIN = ClaimReference(UID, "default", "train")
OTHER = ClaimReference("b2222222-bbbb", "default", "other")
GET = ApiOperation.on("get", RESOURCE_CLAIMS, "default", "train")
NO_NODE = NodeResourceFailed(TRAIN, resource_failures.NO_NODE)
DEADLINE = 10.0


def body(claim: ClaimReference, *devices: str, **result: Any) -> dict[str, Any]:
    results = [
        {"request": "gpu", "driver": DRIVER, "pool": NODE, "device": device, **result}
        for device in devices
    ]
    status = {"allocation": {"devices": {"results": results}}} if devices else {}
    return {
        "metadata": {"namespace": claim.namespace, "name": claim.name, "uid": claim.uid},
        "spec": {"devices": {"requests": []}},
        "status": status,
    }


def record_of(*claims: ClaimReference) -> KubeletRecord:
    return KubeletRecord({claim.uid: claim for claim in claims})


class WatchedLock(FileLock):
    """A lock whose releases a test can act on."""

    released: Callable[[], object]

    @contextmanager
    def held(self, deadline: float) -> Iterator[None]:
        with super().held(deadline):
            yield
        self.released()


@dataclass
class World:
    """The node, the kubelet's record and the API server, as a test wants them."""

    folder: Path
    api: dict[str, dict[str, Any] | ApiError] = field(default_factory=dict)
    asked: list[tuple[str, float]] = field(default_factory=list)
    """Claims that were read from the API, with the patience in seconds."""
    record: KubeletRecord | UnreadableRecord = field(
        default_factory=lambda: record_of(TRAIN, OTHER)
    )
    node: FakePreparer = field(default_factory=FakePreparer)
    reporter: FakeReporter = field(default_factory=FakeReporter)
    now: float = 0.0
    boot: str = "boot-1"
    pause: Callable[[float], object] = time.sleep
    """Called while a lock is waited for."""
    reading: Callable[[], object] = lambda: None
    """Called while the API server is asked."""
    answers: list[dict[str, Any] | ApiError] = field(default_factory=list)
    """What the API server answers first, whatever has changed since."""
    released: Callable[[], object] = lambda: None
    """Called when the node's lock was released."""
    random: float = 0.0
    inventory_age: float = 0.0
    """Seconds since the GPUs were read."""
    is_released: bool = False
    """Whether the node's GPUs are being released."""

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint.jsonl"

    def claims(self) -> ClaimLifecycle:
        """A plugin that has just started."""
        node_lock = WatchedLock(self.folder / "lock", clock=self._clock, pause=self._pause)
        node_lock.released = self.released
        return lifecycle(
            self.folder,
            driver=DRIVER,
            pool=NODE,
            boot_id=self.boot,
            read_claim=self._read,
            read_kubelet_record=lambda: self.record,
            node_lock=node_lock,
            pause=self._pause,
            preparer=self.node,
            reporter=self.reporter,
            clock=self._clock,
            random=lambda: self.random,
            inventory_age=lambda: self.inventory_age,
            released=lambda: self.is_released,
        )

    def hold_gpu(self, gpu: str) -> ExitStack:
        """Locks a GPU as another plugin process does, until what it gives is closed."""
        held = ExitStack()
        lock = FileLock(self.folder / f"{gpu}.lock", clock=time.monotonic, pause=time.sleep)
        held.enter_context(lock.held(time.monotonic() + DEADLINE))
        return held

    def recorded(self) -> dict[str, tuple[str, ...]]:
        """Devices by claim, as they are on disk."""
        checkpoint = CheckpointFile(self.checkpoint).load()
        assert checkpoint is not None
        return {
            claim.name: tuple(device.device for device in claim.devices)
            for claim in checkpoint.claims.values()
        }

    def _clock(self) -> float:
        return self.now or time.monotonic()

    def _pause(self, seconds: float) -> object:
        return self.pause(seconds)

    def _read(self, claim: ClaimReference, patience: float) -> Mapping[str, Any]:
        self.asked.append((claim.name, patience))
        late = self.answers.pop() if self.answers else None
        self.reading()
        found = late or self.api[claim.name]
        if isinstance(found, ApiError):
            raise found
        return found


def refusal(world: World, reference: ClaimReference) -> ClaimFailure:
    with pytest.raises(ClaimError) as caught:
        world.claims().prepare(reference, PATIENT)
    return caught.value.failure
