"""Whole GPUs and shares: the plugin can hold all that the allocator allows at the same time."""

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import count

from hypothesis import given
from hypothesis import strategies as st

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import UPSTREAM
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.quantity import Quantity
from carina_dra.resource import Allocation, DeviceClass, ResourceClaim, decode, encode
from kubelet_plugin.claims.allocation import Wanted, read_allocation
from kubelet_plugin.claims.checkpoint import Checkpoint, conflicting
from kubelet_plugin.claims.claim import ClaimReference
from kubelet_plugin.devices.name import gpu_name
from kubelet_plugin.devices.publish_settings import PublishSettings
from kubelet_plugin.publish.pool import pool
from kubelet_plugin.publish.sync import resource_slices
from tests.samples.gpus import monitor, share, whole

DRIVER, NODE = "gpu.carina.dev", "node-1"
GIB = 80
GPUS = ("gpu-0", "gpu-1")


@dataclass(frozen=True, slots=True)
class Whole:
    """Asks for a whole GPU."""


@dataclass(frozen=True, slots=True)
class Part:
    """Asks for a share, not less than the least."""

    gib: int
    cores: int


@dataclass(frozen=True, slots=True)
class Release:
    """Ends one of the claims."""

    which: int


steps = st.lists(
    st.just(Whole())
    | st.builds(Part, st.integers(GIB // 10, GIB), st.integers(10, 100))
    | st.builds(Release, st.integers(0, 100)),
    max_size=12,
)


def _class(kind: str) -> DeviceClass:
    expression = f"device.attributes['{DRIVER}'].type == '{kind}'"
    selectors = [{"cel": {"expression": expression}}]
    return decode(DeviceClass, {"metadata": {"name": kind}, "spec": {"selectors": selectors}})


CLASSES = {kind: _class(kind) for kind in ("gpu", "share")}


@dataclass
class Machine:
    """A node with two GPUs of 80 GiB, its claims in the API, and its checkpoint."""

    cluster: Cluster = field(default_factory=Cluster)
    checkpoint: Checkpoint = field(default_factory=lambda: Checkpoint("boot", {}))
    asked: dict[str, Whole | Part] = field(default_factory=dict)
    _numbers: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        self.cluster.put_node(Node(NODE))
        devices = [
            make(minor, memory_bytes=GIB * 2**30)
            for make in (whole, share, monitor)
            for minor in range(len(GPUS))
        ]
        published = pool(devices, PublishSettings(DRIVER), node=NODE)
        for one in resource_slices(published, generation=1):
            name = one.metadata.generate_name
            self.cluster.put_slice(replace(one, metadata=replace(one.metadata, name=name)))

    def room(self, ask: Whole | Part) -> bool:
        """Whether a GPU has room, counted from what the recorded claims asked for."""
        return any(self._has_room(gpu, ask) for gpu in GPUS)

    def _has_room(self, gpu: str, ask: Whole | Part) -> bool:
        held = self._held(gpu)
        match ask:
            case Whole():
                return not held
            case Part(gib, cores):
                parts = [one for one in held if isinstance(one, Part)]
                return (
                    Whole() not in held
                    and sum(one.gib for one in parts) + gib <= GIB
                    and sum(one.cores for one in parts) + cores <= 100
                )

    def _held(self, gpu: str) -> list[Whole | Part]:
        return [
            self.asked[uid]
            for uid, claim in self.checkpoint.claims.items()
            for hold in claim.holds
            if gpu_name(hold.device) == gpu
        ]

    def ask(self, ask: Whole | Part) -> bool:
        """Allocates and records a claim; returns whether the allocator has found a device."""
        uid = f"uid-{next(self._numbers)}"
        body = _claim(uid, ask)
        claim = decode(ResourceClaim, body)
        placer = Placer(self.cluster, UPSTREAM, new_share_id=lambda: f"share-of-{uid}")
        request = PlacementRequest.of([claim], CLASSES, self.cluster.features)
        placement = placer.place(request, [NODE])
        if not isinstance(placement, PlacedClaims):
            return False
        (allocation,) = placement.allocated.allocations
        self.cluster.put_claim(claim)
        self.cluster.allocate(claim.key, allocation)
        self._record(uid, ask, {**body, "status": {"allocation": encode(allocation)}}, allocation)
        return True

    def _record(
        self, uid: str, ask: Whole | Part, body: dict[str, object], allocation: Allocation
    ) -> None:
        reading = read_allocation(
            body, ClaimReference(uid, "default", uid), driver=DRIVER, pool=NODE
        )
        assert isinstance(reading, Wanted)
        assert conflicting(self.checkpoint, reading.claim) is None
        self.checkpoint = self.checkpoint.with_claim(reading.claim)
        self.asked[uid] = ask
        (result,) = allocation.devices.results
        amounts = {name: quantity.value() for name, quantity in result.consumed_capacity.items()}
        match ask:
            case Whole():
                assert amounts == {}
            case Part(gib, cores):
                assert amounts == {"memory": gib * 2**30, "cores": cores}

    def release(self, which: int) -> None:
        """Ends a claim, if there is one."""
        uids = sorted(self.checkpoint.claims)
        if uids:
            uid = uids[which % len(uids)]
            self.cluster.release(f"default/{uid}")
            self.checkpoint = self.checkpoint.without(uid)


def _claim(uid: str, ask: Whole | Part) -> dict[str, object]:
    request = {"name": "gpu", "exactly": _exactly(ask)}
    return {
        "metadata": {"namespace": "default", "name": uid, "uid": uid},
        "spec": {"devices": {"requests": [request]}},
    }


def _exactly(ask: Whole | Part) -> dict[str, object]:
    match ask:
        case Whole():
            return {"deviceClassName": "gpu"}
        case Part(gib, cores):
            requests = {"memory": str(Quantity.of(gib * 2**30)), "cores": str(cores)}
            return {"deviceClassName": "share", "capacity": {"requests": requests}}


@given(steps)
def test_every_claim_with_room_is_allocated_and_held_and_no_other(
    taken: list[Whole | Part | Release],
) -> None:
    machine = Machine()
    for step in taken:
        match step:
            case Release(which):
                machine.release(which)
            case Whole() | Part():
                room = machine.room(step)
                assert machine.ask(step) == room


def test_the_first_device_that_fits_is_taken() -> None:
    machine = Machine()
    for _ in range(3):
        assert machine.ask(Part(30, 40))
    holds = [hold for claim in machine.checkpoint.claims.values() for hold in claim.holds]
    assert Counter(str(hold.device) for hold in holds) == {"gpu-0-share": 2, "gpu-1-share": 1}
    assert not machine.ask(Whole())
