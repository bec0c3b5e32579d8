"""What the allocator gives out a real API server accepts, and kube-scheduler binds pods to it."""

import json
import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
import yaml

from carina_dra.allocator.node import Node
from carina_dra.allocator.preference import Order, Policy
from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carina_dra.kube.client import Client
from carina_dra.kube.kubeconfig import from_kubeconfig
from carina_dra.placement.choice.placer import PlacedClaims, PlacementRequest, Placer
from carina_dra.placement.cluster.cluster import Cluster as Devices
from carina_dra.resource import (
    Allocation,
    DeviceClass,
    ResourceClaim,
    ResourceSlice,
    decode,
    encode,
)
from simulation.kubernetes.cluster import Cluster
from tests.eventually import eventually

_DRIVER = "allocated.example.com"
_NODES = [f"alloc-{index}" for index in range(10)]
_CLAIMS = 200
_PODS = 40
_NAMESPACE = "allocations"
_FINALIZER = "resource.kubernetes.io/delete-protection"
Object = dict[str, Any]


def _gpu(name: str, index: int, **more: Any) -> Object:
    attributes = {
        "model": {"string": "H200"},
        "type": {"string": name.partition("-")[0]},
        "driverVersion": {"version": "580.65.6"},
        "resource.kubernetes.io/numaNode": {"int": index // 4},
    }
    return {"name": name, "attributes": attributes, **more}


def _slices(node: str) -> Iterator[Object]:
    """A node's whole GPUs, partitions of two more, and two that are shared."""
    counters = [
        {"name": f"gpu-{index}", "counters": {"memory": {"value": "80Gi"}}} for index in range(2)
    ]
    whole = [_gpu(f"gpu-{index}", index) for index in range(8)]
    whole[7]["taints"] = [{"key": "example.com/slow", "effect": "NoSchedule"}]
    parts = [
        _gpu(
            f"part-{index}-{number}",
            index,
            consumesCounters=[
                {"counterSet": f"gpu-{index}", "counters": {"memory": {"value": size}}}
            ],
        )
        for index in range(2)
        for number, size in enumerate(["80Gi", "40Gi", "40Gi", "20Gi", "20Gi"])
    ]
    policy = {"default": "1Gi", "validRange": {"min": "1Gi", "step": "1Gi"}}
    shared = [
        _gpu(
            f"share-{index}",
            index,
            allowMultipleAllocations=True,
            capacity={"memory": {"value": "40Gi", "requestPolicy": policy}},
        )
        for index in range(2)
    ]
    specs: list[Object] = [
        {"devices": whole},
        {"sharedCounters": counters},
        {"devices": parts},
        {"devices": shared},
    ]
    for index, spec in enumerate(specs):
        pool = {"name": node, "generation": 1, "resourceSliceCount": len(specs)}
        yield {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {"name": f"{node}-{index}"},
            "spec": {"driver": _DRIVER, "nodeName": node, "pool": pool, **spec},
        }


def _selected(kind: str) -> list[Object]:
    return [{"cel": {"expression": f'device.attributes["{_DRIVER}"].type == "{kind}"'}}]


def _random_claim(random: Random, name: str) -> Object:
    def asked(kind: str, count: int = 1) -> Object:
        made: Object = {"deviceClassName": _DRIVER, "selectors": _selected(kind), "count": count}
        if kind == "share":
            made["capacity"] = {"requests": {"memory": random.choice(["1Gi", "2Gi", "2500Mi"])}}
        if random.random() < 0.3:
            made["tolerations"] = [{"key": "example.com/slow", "operator": "Exists"}]
        return made

    requests: list[Object] = []
    for index in range(random.choice([1, 1, 1, 2])):
        kind = random.choice(["gpu", "part", "share", "share", "share"])
        if random.random() < 0.2:
            alternatives = [
                {"name": each, **asked(each)} for each in random.sample(["gpu", "part", "share"], 2)
            ]
            requests.append({"name": f"req-{index}", "firstAvailable": alternatives})
        else:
            requests.append({"name": f"req-{index}", "exactly": asked(kind)})
    devices: Object = {"requests": requests}
    if random.random() < 0.3:
        devices["constraints"] = [{"matchAttribute": "resource.kubernetes.io/numaNode"}]
    if random.random() < 0.3:
        opaque = {"driver": _DRIVER, "parameters": {"kind": "Anything"}}
        devices["config"] = [{"requests": ["req-0"], "opaque": opaque}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": name, "namespace": _NAMESPACE, "finalizers": [_FINALIZER]},
        "spec": {"devices": devices},
    }


@pytest.fixture(scope="module")
def client(cluster: Cluster) -> Iterator[Client]:
    """An administrator's client of a cluster with ten nodes, their slices and a class."""
    cluster.add_fake_nodes(_NODES)
    cluster.create_namespace(_NAMESPACE)
    with Client(from_kubeconfig(cluster.kubeconfig)) as client:
        for node in _NODES:
            for each in _slices(node):
                client.create(RESOURCE_SLICES, each)
        selector = {"cel": {"expression": f'device.driver == "{_DRIVER}"'}}
        parameters = {"of": "class"}
        client.create(
            DEVICE_CLASSES,
            {
                "apiVersion": "resource.k8s.io/v1",
                "kind": "DeviceClass",
                "metadata": {"name": _DRIVER},
                "spec": {
                    "selectors": [selector],
                    "config": [{"opaque": {"driver": _DRIVER, "parameters": parameters}}],
                },
            },
        )
        yield client


def _devices(client: Client) -> Devices:
    """What the API says there is."""
    devices = Devices()
    for body in client.list(NODES).items:
        devices.put_node(Node.of(body))
    for body in client.list(RESOURCE_SLICES).items:
        devices.put_slice(decode(ResourceSlice, body))
    return devices


def _allocate(client: Client) -> dict[str, tuple[str, Allocation]]:
    """Gives devices to random claims and writes them; the node and the devices by claim."""
    random = Random(20_26)
    devices = _devices(client)
    classes = {_DRIVER: decode(DeviceClass, client.get(DEVICE_CLASSES, _DRIVER))}
    given: dict[str, tuple[str, Allocation]] = {}
    policies = [Policy(), Policy(Order.SPREAD, Order.SPREAD), Policy(devices=None)]
    placers = [Placer(devices, each, new_share_id=lambda: str(uuid.uuid4())) for each in policies]
    number = 0
    while len(given) < _CLAIMS:
        number += 1
        body = client.create(RESOURCE_CLAIMS, _random_claim(random, f"claim-{number}"))
        claim = decode(ResourceClaim, body)
        request = PlacementRequest.of([claim], classes, devices.features)
        placement = random.choice(placers).place(request)
        if not isinstance(placement, PlacedClaims):
            continue
        allocation = placement.allocated.allocations[0]
        written = {**encode(allocation), "allocationTimestamp": _now()}
        stored = client.replace_status(RESOURCE_CLAIMS, {**body, "status": {"allocation": written}})
        assert stored["status"]["allocation"]["devices"] == written["devices"]
        devices.allocate(claim.key, allocation)
        given[claim.metadata.name] = placement.node, allocation
    return given


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _pod(name: str, claim: str) -> Object:
    container = {
        "name": "main",
        "image": "none",
        "resources": {"claims": [{"name": "gpus"}]},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": _NAMESPACE},
        "spec": {
            "containers": [container],
            "resourceClaims": [{"name": "gpus", "resourceClaimName": claim}],
            "tolerations": [{"operator": "Exists"}],
        },
    }


def test_command_reads_the_cluster(client: Client, cluster: Cluster) -> None:
    command = [sys.executable, "-m", "carina_dra", "allocate", "--cluster", "-f", "-", "-o", "json"]
    done = subprocess.run(
        [*command, "--node", _NODES[3]],
        input=yaml.safe_dump(_random_claim(Random(1), "wanted")),
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    [allocated] = json.loads(done.stdout)["allocated"]
    assert allocated["node"] == _NODES[3]
    assert {each["pool"] for each in allocated["allocation"]["devices"]["results"]} == {_NODES[3]}


def test_allocations_are_accepted_and_pods_are_bound_to_them(client: Client) -> None:
    given = _allocate(client)
    assert len(given) == _CLAIMS
    kinds = {
        result.device.partition("-")[0]
        for _, allocation in given.values()
        for result in allocation.devices.results
    }
    assert kinds == {"gpu", "part", "share"}

    pods = {f"pod-{name}": (name, node) for name, (node, _) in list(given.items())[:_PODS]}
    for pod, (claim, _) in pods.items():
        client.create(PODS, _pod(pod, claim))

    def bound() -> bool:
        on = {
            body["metadata"]["name"]: body["spec"].get("nodeName")
            for body in client.list(PODS).items
            if body["metadata"]["namespace"] == _NAMESPACE
        }
        return all(on[pod] == node for pod, (_, node) in pods.items())

    eventually(bound, within=60)
    for pod, (claim, _) in pods.items():
        stored = client.get(RESOURCE_CLAIMS, claim, namespace=_NAMESPACE)
        assert [each["name"] for each in stored["status"]["reservedFor"]] == [pod]
