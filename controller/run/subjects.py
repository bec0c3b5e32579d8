"""The subjects of decisions: each resource that the controller reads, and where its objects go."""

import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, Generic, TypeVar

from carina_dra.kube.api_resource import (
    DEVICE_CLASSES,
    DEVICE_TAINT_RULES,
    NAMESPACES,
    NODES,
    PODS,
    RESOURCE_CLAIMS,
    RESOURCE_SLICES,
    ApiResource,
    Scope,
)
from carina_dra.kube.body import Body, ObjectKey
from carina_dra.resource import DeviceClass, DeviceTaintRule, ResourceSlice, decode
from controller.act.queue_finalizer import QueueFinalizers
from controller.api.pod_group import DeclaredGroup, read_pod_group
from controller.api.queue import DeclaredQueue, read_declared_queue
from controller.engine.files.node import read_node
from controller.engine.model.volume import (
    AttachLimits,
    StorageCapacity,
    StorageClass,
    StorageObject,
    Volume,
    VolumeClaim,
    VolumeDriver,
)
from controller.names import POD_GROUPS, QUEUES
from controller.observe.budget import DisruptionBudget, read_budget
from controller.observe.claim import read_claim
from controller.observe.group_registry import GroupRegistry
from controller.observe.mirror import Mirror
from controller.observe.owner import Owner, OwnerKey, OwnerType
from controller.observe.owners.types import OWNER_RESOURCES
from controller.observe.pod import ObservedPod, read_pod
from controller.observe.volume import (
    read_attach_limits,
    read_storage_capacity,
    read_storage_class,
    read_volume,
    read_volume_claim,
    read_volume_driver,
)
from controller.report.least_share_log import LeastShareLog
from controller.report.status_writer import StatusTarget, StatusWriter
from controller.run.newcomers import Newcomers

_BUDGETS: Final = ApiResource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Scope.NAMESPACED
)
_VOLUME_CLAIMS: Final = ApiResource(
    "", "v1", "persistentvolumeclaims", "PersistentVolumeClaim", Scope.NAMESPACED
)
_VOLUMES: Final = ApiResource("", "v1", "persistentvolumes", "PersistentVolume", Scope.CLUSTER)
_STORAGE: Final = "storage.k8s.io"
_STORAGE_CLASSES: Final = ApiResource(
    _STORAGE, "v1", "storageclasses", "StorageClass", Scope.CLUSTER
)
_STORAGE_CAPACITIES: Final = ApiResource(
    _STORAGE, "v1", "csistoragecapacities", "CSIStorageCapacity", Scope.NAMESPACED
)
_VOLUME_DRIVERS: Final = ApiResource(_STORAGE, "v1", "csidrivers", "CSIDriver", Scope.CLUSTER)
_ATTACH_LIMITS: Final = ApiResource(_STORAGE, "v1", "csinodes", "CSINode", Scope.CLUSTER)

T = TypeVar("T")
DeviceObject = TypeVar("DeviceObject", DeviceClass, DeviceTaintRule)


def _nothing(_: object) -> None:
    pass


@dataclass(frozen=True, slots=True)
class Subject(Generic[T]):
    """A resource: how its objects are read, and what its changes do."""

    resource: ApiResource
    parse: Callable[[Body], T]
    put: Callable[[ObjectKey, T], None]
    remove: Callable[[ObjectKey], None]
    """Applies that an object is gone, if it was ever put."""
    delivered: Callable[[T], None] = _nothing
    """Is told of an object once its change is work for the loop, by the thread that follows it."""


@dataclass(frozen=True, slots=True)
class _WithBody(Generic[T]):
    """What was read of an object, and the object."""

    value: T
    body: Body


def subjects(
    mirror: Mirror,
    statuses: StatusWriter | None = None,
    finalizers: QueueFinalizers | None = None,
    shares: LeastShareLog | None = None,
    newcomers: Newcomers | None = None,
) -> list[Subject[Any]]:
    """What every cluster serves that has Carina.

    `statuses` is shown Queues and PodGroups, `finalizers` Queues, `shares` ResourceSlices, and
    `newcomers` the namespaces of pods that wait.
    """

    see_status = partial(_see_status, statuses)

    def put_queue(key: ObjectKey, queue: _WithBody[DeclaredQueue]) -> None:
        mirror.put_queue(key.name, queue.value)
        see_status(QUEUES, key, queue.body)
        _see_finalizers(finalizers, key, queue.body)

    def remove_queue(key: ObjectKey) -> None:
        mirror.put_queue(key.name, None)
        see_status(QUEUES, key, None)
        _see_finalizers(finalizers, key, None)

    def put_group(key: ObjectKey, group: _WithBody[DeclaredGroup]) -> None:
        mirror.declare(str(key), group.value)
        see_status(POD_GROUPS, key, group.body)

    def remove_group(key: ObjectKey) -> None:
        mirror.declare(str(key), None)
        see_status(POD_GROUPS, key, None)

    def put_slice(published: ResourceSlice) -> None:
        mirror.put_devices(published)
        if shares is not None:
            shares.note(published.metadata.name, published, time.monotonic())

    def remove_slice(published: ResourceSlice) -> None:
        mirror.remove_devices(published)
        if shares is not None:
            shares.note(published.metadata.name, None, time.monotonic())

    def put_budget(key: ObjectKey, budget: DisruptionBudget) -> None:
        mirror.put_budget(key.namespace, str(key), budget)

    return [
        Subject(
            QUEUES,
            lambda body: _WithBody(read_declared_queue(body), body),
            put_queue,
            remove_queue,
        ),
        Subject(
            POD_GROUPS, lambda body: _WithBody(read_pod_group(body), body), put_group, remove_group
        ),
        Subject(
            NAMESPACES,
            lambda body: body["metadata"].get("labels") or {},
            lambda key, labels: mirror.put_namespace(key.name, labels),
            lambda key: mirror.put_namespace(key.name, None),
        ),
        _devices(mirror, DEVICE_CLASSES, DeviceClass),
        _by_last_state(RESOURCE_SLICES, partial(decode, ResourceSlice), put_slice, remove_slice),
        Subject(
            NODES,
            partial(read_node, driver=mirror.state.settings.driver),
            lambda _, node: mirror.put_node(node),
            lambda key: mirror.remove_node(key.name),
        ),
        Subject(
            _BUDGETS,
            read_budget,
            put_budget,
            lambda key: mirror.put_budget(key.namespace, str(key), None),
        ),
        _storage(mirror, _STORAGE_CLASSES, StorageClass, read_storage_class),
        _storage(mirror, _VOLUMES, Volume, read_volume),
        _storage(mirror, _VOLUME_CLAIMS, VolumeClaim, read_volume_claim),
        _storage(mirror, _VOLUME_DRIVERS, VolumeDriver, read_volume_driver),
        _storage(mirror, _STORAGE_CAPACITIES, StorageCapacity, read_storage_capacity),
        _storage(mirror, _ATTACH_LIMITS, AttachLimits, read_attach_limits),
        _by_last_state(RESOURCE_CLAIMS, read_claim, mirror.put_claim, mirror.remove_claim),
        _by_last_state(
            PODS, read_pod, mirror.put_pod, mirror.remove_pod, partial(_note_newcomer, newcomers)
        ),
    ]


def _note_newcomer(newcomers: Newcomers | None, pod: ObservedPod) -> None:
    if newcomers is not None and pod.queue is not None and pod.is_held:
        newcomers.note(pod.namespace)


def _see_status(
    statuses: StatusWriter | None, resource: ApiResource, key: ObjectKey, body: Body | None
) -> None:
    if statuses is not None and body is None:
        statuses.forget(StatusTarget(resource, key))
    elif statuses is not None and body is not None:
        statuses.observe(StatusTarget(resource, key), body)


def _see_finalizers(finalizers: QueueFinalizers | None, key: ObjectKey, body: Body | None) -> None:
    if finalizers is not None and body is None:
        finalizers.forget(key.name)
    elif finalizers is not None and body is not None:
        finalizers.observe(key.name, body)


def optional_subjects(mirror: Mirror) -> list[tuple[Subject[Any], ...]]:
    """What a cluster need not serve, each in its versions: the first that is served counts.

    Kubernetes 1.36 does not serve DeviceTaintRules in version v1.
    """
    owners = [
        tuple(_owner(mirror.roster, kind, version) for version in kind.versions)
        for kind in OWNER_RESOURCES
    ]
    return [(_devices(mirror, DEVICE_TAINT_RULES, DeviceTaintRule),), *owners]


def _devices(
    mirror: Mirror, resource: ApiResource, kind: type[DeviceObject]
) -> Subject[DeviceObject]:
    return _by_last_state(
        resource, partial(decode, kind), mirror.put_devices, mirror.remove_devices
    )


def _by_last_state(
    resource: ApiResource,
    parse: Callable[[Body], T],
    put: Callable[[T], None],
    remove: Callable[[T], None],
    delivered: Callable[[T], None] = _nothing,
) -> Subject[T]:
    """A subject whose objects are removed by their last state."""
    last: dict[ObjectKey, T] = {}

    def put_last(key: ObjectKey, value: T) -> None:
        last[key] = value
        put(value)

    def remove_last(key: ObjectKey) -> None:
        if (value := last.pop(key, None)) is not None:
            remove(value)

    return Subject(resource, parse, put_last, remove_last, delivered)


def _storage(
    mirror: Mirror,
    resource: ApiResource,
    kind: type[StorageObject],
    read: Callable[[Body], StorageObject],
) -> Subject[StorageObject]:
    # There are many: each has one text as its name, which `kube.store.Versions` keeps, too.
    return Subject(
        resource,
        read,
        lambda key, watched: mirror.put_storage(sys.intern(str(key)), watched),
        lambda key: mirror.remove_storage(kind, str(key)),
    )


def _owner(roster: GroupRegistry, owner_type: OwnerType, version: ApiResource) -> Subject[Owner]:
    return Subject(
        version,
        owner_type.read,
        lambda _, owner: roster.put_owner(owner.key, owner),
        lambda key: roster.put_owner(OwnerKey(owner_type.kind, key.namespace, key.name), None),
    )
