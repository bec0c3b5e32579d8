"""A client changes an object, and the placement of a claim changes: watches feed the cluster.

On the embedded API server, and on a real one.
"""

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from typing import Any, TypeAlias
from uuid import uuid4

import pytest

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Policy
from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client
from carina_dra.kube.connection import Connection
from carina_dra.kube.errors import PathNotFound
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.kube.reflector import Reflector
from carina_dra.kube.store import Created, ObjectChange, Removed, Updated
from carina_dra.placement.choice.placer import PlacedClaims, Placement, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster
from carina_dra.placement.cluster.feed import Feed, WatchedObject
from carina_dra.resource import (
    DeviceClass,
    DeviceTaintRule,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from simulation.api_server.server import ApiServer
from tests.eventually import eventually

_DRIVER = "fed.example.com"
_EMBEDDED, _REAL = "embedded", "real"
_Parse: TypeAlias = Callable[[Body], WatchedObject]


def _watched() -> Mapping[ApiResource, _Parse]:
    return {
        NODES: Node.of,
        RESOURCE_SLICES: lambda body: decode(ResourceSlice, body),
        RESOURCE_CLAIMS: lambda body: decode(ResourceClaim, body),
        DEVICE_CLASSES: lambda body: decode(DeviceClass, body),
        DEVICE_TAINT_RULES: lambda body: decode(DeviceTaintRule, body),
    }


class WatchedCluster:
    """A cluster that follows the API: each watch has a thread, and the feed has one at a time."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cluster = Cluster()
        self._feed = Feed(self._cluster)
        self._placer = Placer(self._cluster, Policy(), new_share_id=lambda: str(uuid4()))

    @contextmanager
    def following(self, client: Client, resources: Mapping[ApiResource, _Parse]) -> Iterator[None]:
        with ExitStack() as running:
            for resource, parse in resources.items():
                reflector = Reflector(client, resource, parse, on_change=self._take)
                reflector.start()
                running.callback(reflector.stop)
                assert reflector.wait_synced(10)
            yield

    def place(self, claim: Body) -> Placement:
        with self._lock:
            asked = decode(ResourceClaim, claim)
            return self._placer.place(
                PlacementRequest.of([asked], self._feed.classes, self._cluster.features)
            )

    def knows_class(self, name: str) -> bool:
        with self._lock:
            return name in self._feed.classes

    def _take(self, change: ObjectChange[WatchedObject]) -> None:
        with self._lock:
            match change:
                case Created(value=value) | Updated(after=value):
                    self._feed.put(value)
                case Removed(value=value):
                    self._feed.remove(value)


class World:
    """A node of the test's own with a class for its devices, and a cluster that follows the API."""

    def __init__(self, client: Client, followed: WatchedCluster, name: str) -> None:
        self.client = client
        self.followed = followed
        self.name = name
        """Of node, namespace, pool and class."""

    def slice(self, name: str, *devices: str, generation: int = 1) -> Body:
        """A slice that is the whole pool of the node."""
        pool = {"name": self.name, "generation": generation, "resourceSliceCount": 1}
        attributes = {"node": {"string": self.name}}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{self.name}-{name}"},
            "spec": {
                "driver": _DRIVER,
                "nodeName": self.name,
                "pool": pool,
                "devices": [{"name": device, "attributes": attributes} for device in devices],
            },
        }

    def claim(self, name: str) -> Body:
        """A claim for one device of the node."""
        request = {"name": "gpu", "exactly": {"deviceClassName": self.name}}
        return {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceClaim",
            "metadata": {"name": name, "namespace": self.name},
            "spec": {"devices": {"requests": [request]}},
        }

    def device(self) -> str | None:
        """The device that another claim would get."""
        placement = self.followed.place(self.claim("asked"))
        if not isinstance(placement, PlacedClaims):
            return None
        [result] = placement.allocated.allocations[0].devices.results
        assert placement.node == result.pool == self.name
        return result.device

    def awaits(self, device: str | None) -> None:
        """Waits until another claim would get this device, or none."""
        eventually(lambda: self.device() == device)

    def allocate(self, name: str) -> None:
        """Creates a claim, and writes its allocation."""
        body = self.client.create(RESOURCE_CLAIMS, self.claim(name))
        placement = self.followed.place(body)
        assert isinstance(placement, PlacedClaims)
        status = {"allocation": encode(placement.allocated.allocations[0])}
        self.client.replace_status(RESOURCE_CLAIMS, {**body, "status": status})


@pytest.fixture(
    scope="module", params=[_EMBEDDED, pytest.param(_REAL, marks=pytest.mark.kubernetes)]
)
def connection(request: pytest.FixtureRequest) -> Iterator[Connection]:
    """How to reach the API server."""
    if request.param == _EMBEDDED:
        with ApiServer() as server:
            yield server.connection
    else:
        yield from_kubeconfig(request.getfixturevalue("cluster").kubeconfig)


@pytest.fixture
def world(connection: Connection) -> Iterator[World]:
    """A node with one slice of two devices, and a claim for one gets the first."""
    name = f"fed-{uuid4().hex[:8]}"
    expression = f'device.driver == "{_DRIVER}" && device.attributes["{_DRIVER}"].node == "{name}"'
    objects: list[tuple[ApiResource, Body]] = [
        (NAMESPACES, {"metadata": {"name": name}}),
        (NODES, {"metadata": {"name": name}}),
        (
            DEVICE_CLASSES,
            {
                "metadata": {"name": name},
                "spec": {"selectors": [{"cel": {"expression": expression}}]},
            },
        ),
    ]
    with Client(connection) as client:
        watched = dict(_watched())
        if not _is_served(client, DEVICE_TAINT_RULES):
            del watched[DEVICE_TAINT_RULES]
        followed = WatchedCluster()
        with followed.following(client, watched):
            world = World(client, followed, name)
            for resource, body in objects:
                client.create(resource, body)
            client.create(RESOURCE_SLICES, world.slice("first", "gpu-0", "gpu-1"))
            eventually(lambda: followed.knows_class(name))  # a claim of it is an error before
            world.awaits("gpu-0")
            yield world
            for body in client.list(RESOURCE_SLICES).items:
                if body["spec"].get("nodeName") == name:
                    client.delete(RESOURCE_SLICES, body["metadata"]["name"])
            for resource, body in reversed(objects):
                client.delete(resource, body["metadata"]["name"])


def _is_served(client: Client, resource: ApiResource) -> bool:
    try:
        client.list(resource)
    except PathNotFound:
        return False
    return True


def test_a_changed_slice_offers_other_devices(world: World) -> None:
    stored = world.client.get(RESOURCE_SLICES, f"{world.name}-first")
    stored["spec"]["devices"] = world.slice("first", "gpu-7")["spec"]["devices"]
    world.client.replace(RESOURCE_SLICES, stored)
    world.awaits("gpu-7")


def test_a_deleted_slice_offers_nothing(world: World) -> None:
    world.client.delete(RESOURCE_SLICES, f"{world.name}-first")
    world.awaits(None)


def test_a_slice_of_a_newer_generation_replaces_the_pool(world: World) -> None:
    world.client.create(RESOURCE_SLICES, world.slice("second", "gpu-2", generation=2))
    world.awaits("gpu-2")
    world.client.delete(RESOURCE_SLICES, f"{world.name}-second")
    world.awaits("gpu-0")


def test_devices_of_an_allocated_claim_are_used_until_it_is_deleted(world: World) -> None:
    world.allocate("first")
    world.awaits("gpu-1")
    world.allocate("second")
    world.awaits(None)
    world.client.delete(RESOURCE_CLAIMS, "first", namespace=world.name)
    world.awaits("gpu-0")


def test_a_changed_class_selects_other_devices(world: World) -> None:
    stored = world.client.get(DEVICE_CLASSES, world.name)
    kept = stored["spec"]["selectors"]
    stored["spec"]["selectors"] = [{"cel": {"expression": "false"}}]
    stored = world.client.replace(DEVICE_CLASSES, stored)
    world.awaits(None)
    world.client.replace(DEVICE_CLASSES, {**stored, "spec": {"selectors": kept}})
    world.awaits("gpu-0")


def test_a_taint_rule_keeps_claims_away_until_it_is_deleted(world: World) -> None:
    if not _is_served(world.client, DEVICE_TAINT_RULES):
        pytest.skip("Kubernetes 1.36 does not serve taint rules in this version")
    rule: dict[str, Any] = {
        "metadata": {"name": world.name},
        "spec": {
            "deviceSelector": {"driver": _DRIVER, "pool": world.name, "device": "gpu-0"},
            "taint": {"key": "example.com/broken", "effect": "NoSchedule"},
        },
    }
    world.client.create(DEVICE_TAINT_RULES, rule)
    world.awaits("gpu-1")
    world.client.delete(DEVICE_TAINT_RULES, world.name)
    world.awaits("gpu-0")
