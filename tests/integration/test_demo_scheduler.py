"""The demo's stand-in for kube-scheduler: what it writes, and what it refuses."""

from collections.abc import Iterator
from typing import Any

import pytest

from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    NODES,
    PODS,
    RESOURCE_CLAIM_TEMPLATES,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
)
from carina_dra.kube.body import Body
from carina_dra.kube.client import Client, MergePatch
from carina_dra.resource import encode
from controller.act.patch import pinned
from simulation.api_server.server import ApiServer
from simulation.demo.claim_controller import make_claims
from simulation.demo.console import DemoError
from simulation.demo.scheduler import ScheduledPod, is_gated, schedule
from tests.samples import fleet

NAMESPACE = "default"
ONE_GPU = {"name": "gpu", "exactly": {"deviceClassName": "gpu"}}


class Api:
    """An embedded API with nodes and their devices, and pods to be scheduled."""

    def __init__(self, client: Client) -> None:
        self.client = client

    def add_node(self, name: str, *devices: dict[str, Any], **slice_spec: Any) -> None:
        self.client.create(NODES, {"metadata": {"name": name}})
        for published in fleet.slices(name, {"devices": list(devices), **slice_spec}):
            self.client.create(RESOURCE_SLICES, encode(published))

    def add_template(
        self, name: str, *requests: dict[str, Any], labels: dict[str, str] | None = None
    ) -> None:
        self.client.create(
            RESOURCE_CLAIM_TEMPLATES,
            {
                "metadata": {"name": name, "namespace": NAMESPACE},
                "spec": {
                    "metadata": {"labels": labels or {}},
                    "spec": {"devices": {"requests": list(requests)}},
                },
            },
        )

    def add_claim(self, name: str, *requests: dict[str, Any]) -> None:
        metadata = {"name": name, "namespace": NAMESPACE}
        spec = {"devices": {"requests": list(requests)}}
        self.client.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": spec})

    def pod(
        self,
        name: str,
        *claims: dict[str, str],
        limits: dict[str, str] | None = None,
        **more: Any,
    ) -> Body:
        """Creates a pod."""
        spec = {
            "containers": [{"name": "main", "resources": {"limits": limits or {}}}],
            "resourceClaims": [{"name": f"claim-{i}", **claim} for i, claim in enumerate(claims)],
            **more,
        }
        pod = {"metadata": {"name": name, "namespace": NAMESPACE}, "spec": spec}
        return self.client.create(PODS, pod)

    def schedule(self, name: str, *claims: dict[str, str], **more: Any) -> ScheduledPod:
        """Creates a pod and schedules it."""
        return schedule(self.client, self.pod(name, *claims, **more))

    def claim(self, name: str) -> Body:
        return self.client.get(RESOURCE_CLAIMS, name, namespace=NAMESPACE)

    def results(self, pod: ScheduledPod) -> list[tuple[str, str]]:
        """The node's devices that the pod was given, each after its request."""
        allocations = [self.claim(name)["status"]["allocation"] for name in pod.claims]
        return [
            (result["request"], result["device"])
            for allocation in allocations
            for result in allocation["devices"]["results"]
        ]


@pytest.fixture
def api() -> Iterator[Api]:
    with ApiServer() as server, Client(server.connection, user_agent="test") as client:
        device_class = encode(fleet.CLASSES["gpu"])
        device_class["spec"]["extendedResourceName"] = "nvidia.com/gpu"
        client.create(DEVICE_CLASSES, device_class)
        yield Api(client)


def from_template(name: str) -> dict[str, str]:
    return {"resourceClaimTemplateName": name}


def existing(name: str) -> dict[str, str]:
    return {"resourceClaimName": name}


def test_allocation_reservation_finalizer_and_node_are_written(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"))
    api.add_claim("own", ONE_GPU)

    placement = api.schedule("pod", existing("own"))

    claim = api.claim("own")
    assert placement.pod["spec"]["nodeName"] == placement.node == "node-1"
    assert claim["metadata"]["finalizers"] == ["resource.kubernetes.io/delete-protection"]
    field = {"key": "metadata.name", "operator": "In", "values": ["node-1"]}
    result = {"request": "gpu", "driver": fleet.DRIVER, "pool": "node-1", "device": "gpu-0"}
    assert claim["status"] == {
        "allocation": {
            "devices": {"results": [result]},
            "nodeSelector": {"nodeSelectorTerms": [{"matchFields": [field]}]},
        },
        "reservedFor": [
            {"resource": "pods", "name": "pod", "uid": placement.pod["metadata"]["uid"]}
        ],
    }


def test_the_configurations_of_class_and_claim_come_with_the_allocation(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"), fleet.gpu("gpu-1"))
    opaque = {"driver": fleet.DRIVER, "parameters": {"kind": "Config"}}
    device_class = {"metadata": {"name": "set-up"}, "spec": {"config": [{"opaque": opaque}]}}
    api.client.create(DEVICE_CLASSES, device_class)
    devices = {
        "requests": [ONE_GPU, {"name": "other", "exactly": {"deviceClassName": "set-up"}}],
        "config": [{"requests": ["gpu"], "opaque": opaque}],
    }
    metadata = {"name": "own", "namespace": NAMESPACE}
    api.client.create(RESOURCE_CLAIMS, {"metadata": metadata, "spec": {"devices": devices}})

    api.schedule("pod", existing("own"))

    assert api.claim("own")["status"]["allocation"]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["other"], "opaque": opaque},
        {"source": "FromClaim", "requests": ["gpu"], "opaque": opaque},
    ]


def test_all_claims_of_a_pod_are_allocated_on_one_node(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"))
    api.add_node("node-2", fleet.gpu("gpu-0"), fleet.gpu("gpu-1"))
    api.add_template("one", ONE_GPU)

    placement = api.schedule("pod", from_template("one"), from_template("one"))

    assert placement.node == "node-2"
    assert api.results(placement) == [("gpu", "gpu-0"), ("gpu", "gpu-1")]


def test_a_pod_follows_a_claim_that_is_allocated(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"))
    api.add_claim("shared", ONE_GPU)
    first = api.schedule("first", existing("shared"))
    api.add_node("node-0", fleet.gpu("gpu-0"), fleet.gpu("gpu-1"))
    api.add_template("one", ONE_GPU)

    second = api.schedule("second", existing("shared"))

    claim = api.claim("shared")
    assert second.node == first.node == "node-1"
    assert [user["name"] for user in claim["status"]["reservedFor"]] == ["first", "second"]
    assert len(claim["metadata"]["finalizers"]) == 1


def test_a_pod_that_is_pinned_goes_to_its_node(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"))
    api.add_node("node-2", fleet.gpu("gpu-0"))
    api.add_template("one", ONE_GPU)

    placement = api.schedule("pod", from_template("one"), affinity=pinned({}, "node-2"))

    assert placement.node == "node-2"


def test_a_gate_holds_a_pod(api: Api) -> None:
    assert is_gated(api.pod("gated", schedulingGates=[{"name": "wait"}]))
    assert not is_gated(api.pod("free", schedulingGates=[]))


def test_a_gated_pod_gets_its_claims_once_with_the_labels_of_the_template(api: Api) -> None:
    api.add_template("one", ONE_GPU, labels={"team": "a"})
    pod = api.pod("pod", from_template("one"))

    [name] = make_claims(api.client, pod)
    again = make_claims(api.client, api.client.get(PODS, "pod", namespace=NAMESPACE))

    assert again == [name]
    assert api.claim(name)["metadata"]["labels"] == {"team": "a"}


def test_a_claim_that_is_reserved_for_the_pod_stays_as_it_is(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"))
    api.add_claim("own", ONE_GPU)
    api.schedule("other", existing("own"))
    pod = api.pod("pod", existing("own"))
    consumer = {"resource": "pods", "name": "pod", "uid": pod["metadata"]["uid"]}
    reserved = api.client.patch(
        RESOURCE_CLAIMS,
        "own",
        MergePatch({"status": {"reservedFor": [consumer]}}),
        namespace=NAMESPACE,
        subresource="status",
    )

    schedule(api.client, pod)

    assert api.claim("own") == reserved


def test_a_limit_of_an_extended_resource_becomes_a_claim(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"), fleet.gpu("gpu-1"))

    placement = api.schedule("pod", limits={"nvidia.com/gpu": "2"})

    assert api.results(placement) == [
        ("container-0-request-0", "gpu-0"),
        ("container-0-request-0", "gpu-1"),
    ]
    mapping = {
        "containerName": "main",
        "resourceName": "nvidia.com/gpu",
        "requestName": "container-0-request-0",
    }
    assert placement.pod["status"]["extendedResourceClaimStatus"] == {
        "resourceClaimName": placement.claims[0],
        "requestMappings": [mapping],
    }


def test_admin_access_sees_devices_in_use_and_takes_none(api: Api) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"), fleet.gpu("gpu-1"))
    api.add_template("one", ONE_GPU)
    everything = {"deviceClassName": "gpu", "allocationMode": "All", "adminAccess": True}
    api.add_template("monitor", {"name": "all", "exactly": everything})

    api.schedule("first", from_template("one"))
    monitor = api.schedule("monitor", from_template("monitor"))
    second = api.schedule("second", from_template("one"))

    assert api.results(monitor) == [("all", "gpu-0"), ("all", "gpu-1")]
    assert api.results(second) == [("gpu", "gpu-1")]


def test_a_device_is_shared_by_its_capacity(api: Api) -> None:
    shared = fleet.gpu("gpu-0") | {
        "allowMultipleAllocations": True,
        "capacity": {"memory": {"value": "80Gi"}},
    }
    api.add_node("node-1", shared)
    half = {"deviceClassName": "gpu", "capacity": {"requests": {"memory": "40Gi"}}}
    api.add_template("half", {"name": "gpu", "exactly": half})

    placements = [api.schedule(name, from_template("half")) for name in ("first", "second")]

    results = [
        api.claim(placement.claims[0])["status"]["allocation"]["devices"]["results"][0]
        for placement in placements
    ]
    assert [result["consumedCapacity"] for result in results] == [{"memory": "40Gi"}] * 2
    assert results[0]["shareID"] != results[1]["shareID"]
    with pytest.raises(DemoError, match="no node has the devices"):
        api.schedule("third", from_template("half"))


def test_partitions_draw_on_the_counters_of_their_gpu(api: Api) -> None:
    def drawing(name: str, slices: int) -> dict[str, Any]:
        counters = {"slices": {"value": str(slices)}}
        consumes = [{"counterSet": "gpu-0", "counters": counters}]
        return fleet.gpu(name) | {"consumesCounters": consumes}

    api.client.create(NODES, {"metadata": {"name": "node-1"}})
    counter_set = {"name": "gpu-0", "counters": {"slices": {"value": "7"}}}
    devices = [drawing("gpu-0-part", 4), drawing("gpu-0", 7), drawing("gpu-0-rest", 3)]
    for spec in fleet.slices("node-1", {"sharedCounters": [counter_set]}, {"devices": devices}):
        api.client.create(RESOURCE_SLICES, encode(spec))
    api.add_template("one", ONE_GPU)

    given = [api.results(api.schedule(name, from_template("one"))) for name in ("first", "second")]

    assert given == [[("gpu", "gpu-0-part")], [("gpu", "gpu-0-rest")]]


@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (ONE_GPU, r"1 device: 1 in use"),
        ({"name": "gpu", "exactly": {"deviceClassName": "none"}}, "device class none: not found"),
    ],
    ids=["devices in use", "no such class"],
)
def test_a_pod_that_fits_nowhere_is_refused_with_the_reason(
    api: Api, request_: dict[str, Any], reason: str
) -> None:
    api.add_node("node-1", fleet.gpu("gpu-0"))
    api.add_template("one", ONE_GPU)
    api.schedule("first", from_template("one"))
    api.add_template("refused", request_)

    with pytest.raises(DemoError, match=rf"(?s)default/second cannot be scheduled: .*{reason}"):
        api.schedule("second", from_template("refused"))
