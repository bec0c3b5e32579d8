"""The subjects of decisions: each resource that the controller reads, and where its objects go."""

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
from carina_dra.resource import DeviceClass, DeviceTaintRule, ResourceClaim, ResourceSlice, decode
from controller.api.pod_group import DeclaredGroup, read_pod_group
from controller.api.queue import DeclaredQueue, read_declared_queue
from controller.codec.node import read_node
from controller.observe.budget import Budget, read_budget
from controller.observe.mirror import Mirror
from controller.observe.owner import Owner, OwnerKey, OwnerType
from controller.observe.owners.types import OWNER_RESOURCES
from controller.observe.pod import read_pod
from controller.observe.roster import Roster
from controller.report.cycle_report import POD_GROUPS, QUEUES
from controller.report.status_writer import StatusTarget, StatusWriter

_BUDGETS: Final = ApiResource(
    "policy", "v1", "poddisruptionbudgets", "PodDisruptionBudget", Scope.NAMESPACED
)

T = TypeVar("T")
DeviceObject = TypeVar("DeviceObject", ResourceSlice, DeviceClass, DeviceTaintRule)


@dataclass(frozen=True, slots=True)
class Subject(Generic[T]):
    """A resource: how its objects are read, and what its changes do."""

    resource: ApiResource
    parse: Callable[[Body], T]
    put: Callable[[ObjectKey, T], None]
    remove: Callable[[ObjectKey, T], None]


@dataclass(frozen=True, slots=True)
class _WithBody(Generic[T]):
    """What was read of an object, and the object."""

    value: T
    body: Body


def subjects(mirror: Mirror, statuses: StatusWriter | None = None) -> list[Subject[Any]]:
    """What every cluster serves that has Carina; `statuses` is shown Queues and PodGroups."""

    def see_status(resource: ApiResource, key: ObjectKey, body: Body | None) -> None:
        if statuses is None:
            return
        target = StatusTarget(resource, key)
        if body is None:
            statuses.forget(target)
        else:
            statuses.observe(target, body)

    def put_queue(key: ObjectKey, queue: _WithBody[DeclaredQueue]) -> None:
        mirror.put_queue(key.name, queue.value)
        see_status(QUEUES, key, queue.body)

    def remove_queue(key: ObjectKey, _queue: _WithBody[DeclaredQueue]) -> None:
        mirror.put_queue(key.name, None)
        see_status(QUEUES, key, None)

    def put_group(key: ObjectKey, group: _WithBody[DeclaredGroup]) -> None:
        mirror.declare(str(key), group.value)
        see_status(POD_GROUPS, key, group.body)

    def remove_group(key: ObjectKey, _group: _WithBody[DeclaredGroup]) -> None:
        mirror.declare(str(key), None)
        see_status(POD_GROUPS, key, None)

    def put_budget(key: ObjectKey, budget: Budget) -> None:
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
            lambda key, _: mirror.put_namespace(key.name, None),
        ),
        _devices(mirror, DEVICE_CLASSES, DeviceClass),
        _devices(mirror, RESOURCE_SLICES, ResourceSlice),
        Subject(
            NODES,
            read_node,
            lambda _, node: mirror.put_node(node),
            lambda key, _: mirror.remove_node(key.name),
        ),
        Subject(
            _BUDGETS,
            read_budget,
            put_budget,
            lambda key, _: mirror.put_budget(key.namespace, str(key), None),
        ),
        Subject(
            RESOURCE_CLAIMS,
            lambda body: decode(ResourceClaim, body),
            lambda _, claim: mirror.put_claim(claim),
            lambda _, claim: mirror.remove_claim(claim),
        ),
        Subject(
            PODS,
            read_pod,
            lambda _, pod: mirror.put_pod(pod),
            lambda _, pod: mirror.remove_pod(pod),
        ),
    ]


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
    return Subject(
        resource,
        partial(decode, kind),
        lambda _, watched: mirror.put_devices(watched),
        lambda _, watched: mirror.remove_devices(watched),
    )


def _owner(roster: Roster, owner_type: OwnerType, version: ApiResource) -> Subject[Owner]:
    return Subject(
        version,
        owner_type.read,
        lambda _, owner: roster.put_owner(owner.key, owner),
        lambda key, _: roster.put_owner(OwnerKey(owner_type.kind, key.namespace, key.name), None),
    )
