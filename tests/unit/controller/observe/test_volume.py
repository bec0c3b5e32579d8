"""PersistentVolumeClaims and the like, as an API server writes them, as values."""

from typing import Any

import pytest

from carina_dra.allocator.node import Node, selects
from controller.engine.model.label_selector import with_labels
from controller.engine.model.volume import (
    AttachLimits,
    StorageCapacity,
    StorageClass,
    Volume,
    VolumeClaim,
    VolumeClaimState,
    VolumeDriver,
)
from controller.observe.pod import read_pod
from controller.observe.volume import (
    read_attach_limits,
    read_storage_capacity,
    read_storage_class,
    read_volume,
    read_volume_claim,
    read_volume_driver,
)

_GI = 2**30
_BOUND = {"annotations": {"pv.kubernetes.io/bind-completed": "yes"}}


def _claim(spec: Any = None, status: Any = None, **metadata: Any) -> VolumeClaim:
    body = {
        "metadata": {"name": "data", "namespace": "team", **metadata},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "fast",
            "resources": {"requests": {"storage": "10Gi"}},
            **(spec or {}),
        },
        "status": status or {},
    }
    return read_volume_claim(body)


def test_a_claim_that_is_not_bound_has_its_size_and_class() -> None:
    expected = VolumeClaim(VolumeClaimState.UNBOUND, class_name="fast", size=10 * _GI)
    assert _claim() == expected


def test_a_claim_is_bound_when_both_sides_say_so() -> None:
    expected = VolumeClaim(VolumeClaimState.BOUND, "v", "fast")
    assert _claim({"volumeName": "v"}, **_BOUND) == expected
    assert _claim({"volumeName": "v"}).state is VolumeClaimState.UNBOUND


@pytest.mark.parametrize(
    ("more", "state"),
    [
        ({"status": {"phase": "Lost"}}, VolumeClaimState.LOST),
        ({"deletionTimestamp": "2026-01-01T00:00:00Z"}, VolumeClaimState.DELETED),
    ],
)
def test_a_claim_that_cannot_be_used(more: dict[str, Any], state: VolumeClaimState) -> None:
    assert _claim({"volumeName": "v"}, **_BOUND, **more).state is state


def test_a_claim_for_one_pod() -> None:
    assert _claim({"accessModes": ["ReadWriteOncePod"]}).is_exclusive


def test_the_node_that_is_selected_for_a_volume() -> None:
    annotations = {"volume.kubernetes.io/selected-node": "n"}
    assert _claim(annotations=annotations).node == "n"


def test_the_annotation_for_the_class_counts_first() -> None:
    annotations = {"volume.beta.kubernetes.io/storage-class": "old"}
    assert _claim(annotations=annotations).class_name == "old"


def _volume(name: str = "v", zone: str = "a", **spec: Any) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]
    return {
        "metadata": {"name": name},
        "spec": {
            "capacity": {"storage": "10Gi"},
            "csi": {"driver": "disk", "volumeHandle": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": terms}},
            "storageClassName": "fast",
            **spec,
        },
        "status": {"phase": "Available" if "claimRef" not in spec else "Bound"},
    }


def test_a_volume_has_its_nodes_and_its_driver() -> None:
    volume = read_volume(_volume(claimRef={"name": "data"}))
    assert volume.affinity is not None
    assert selects(volume.affinity, Node("n", {"zone": "a"}))
    assert not selects(volume.affinity, Node("n", {"zone": "b"}))
    assert volume == Volume(volume.affinity, "disk", "fast")


def test_a_volume_that_can_be_bound_has_its_size() -> None:
    volume = read_volume(_volume(nodeAffinity=None))
    assert volume == Volume(None, "disk", "fast", 10 * _GI, is_available=True)


def test_volumes_of_a_zone_share_its_selector() -> None:
    first, second = read_volume(_volume("v")), read_volume(_volume("w"))
    assert first.affinity is second.affinity


def test_a_class_says_where_and_when_volumes_are_made() -> None:
    read = read_storage_class(
        {
            "metadata": {"name": "fast"},
            "provisioner": "disk",
            "volumeBindingMode": "WaitForFirstConsumer",
            "allowedTopologies": [
                {"matchLabelExpressions": [{"key": "zone", "values": ["a", "b"]}]}
            ],
        }
    )
    assert read.topologies is not None
    assert selects(read.topologies, Node("n", {"zone": "b"}))
    assert not selects(read.topologies, Node("n", {"zone": "c"}))
    assert (read.provisioner, read.waits) == ("disk", True)


def test_a_class_binds_at_once_unless_it_says_otherwise() -> None:
    assert read_storage_class({"provisioner": "disk"}) == StorageClass("disk")


def test_capacity_is_that_of_the_largest_volume() -> None:
    body = {
        "metadata": {"name": "c", "namespace": "driver"},
        "storageClassName": "fast",
        "capacity": "100Gi",
        "nodeTopology": {"matchLabels": {"zone": "a"}},
    }
    assert read_storage_capacity(body) == StorageCapacity(
        "fast", with_labels({"zone": "a"}), 100 * _GI
    )
    assert read_storage_capacity({**body, "maximumVolumeSize": "5Gi"}).size == 5 * _GI


def test_capacity_without_a_topology_is_for_no_node() -> None:
    assert read_storage_capacity({"storageClassName": "fast"}) == StorageCapacity("fast")


def test_a_driver_says_whether_it_has_capacities() -> None:
    assert read_volume_driver({"spec": {"storageCapacity": True}}) == VolumeDriver(True)
    assert read_volume_driver({"spec": {}}) == VolumeDriver(False)


def test_limits_are_by_driver() -> None:
    drivers = [{"name": "disk", "allocatable": {"count": 24}}, {"name": "nfs"}]
    assert read_attach_limits({"spec": {"drivers": drivers}}) == AttachLimits({"disk": 24})


def test_a_pod_names_its_claims_and_those_of_its_ephemeral_volumes() -> None:
    metadata = {
        "name": "p",
        "namespace": "team",
        "uid": "u",
        "resourceVersion": "1",
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    volumes = [
        {"name": "data", "persistentVolumeClaim": {"claimName": "shared"}},
        {"name": "scratch", "ephemeral": {"volumeClaimTemplate": {"spec": {}}}},
        {"name": "config", "configMap": {"name": "c"}},
    ]
    pod = read_pod({"metadata": metadata, "spec": {"containers": [], "volumes": volumes}})
    assert pod.volumes == ("team/shared", "team/p-scratch")
