"""The resources that the embedded API serves, with their properties."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from carina_dra.kube import api_resource
from carina_dra.kube.api_resource import ApiResource, Scope
from carina_dra.kube.body import Body
from controller.names import GROUP

Path: TypeAlias = tuple[str | int, ...]
"""A path into a body: keys of objects, indexes of lists."""

CORE_EVENTS = ApiResource("", "v1", "events", "Event", Scope.NAMESPACED)


@dataclass(frozen=True, slots=True)
class Column:
    """A column of `kubectl get`: the value at a path or, if `counted`, the list's length."""

    name: str
    path: Path
    counted: bool = False


@dataclass(frozen=True, slots=True)
class ServedResource:
    """A resource, and how the API treats it.

    fields: the field selectors beside name and namespace, with their paths;
    initial_status: the status on creation; None to take that of the request;
    with_generation: metadata.generation counts changes outside of metadata and status.
    """

    resource: ApiResource
    short_names: tuple[str, ...] = ()
    subresources: tuple[str, ...] = ()
    fields: Mapping[str, Path] = field(default_factory=dict)
    initial_status: Body | None = None
    with_generation: bool = False
    columns: tuple[Column, ...] = ()

    @property
    def has_status(self) -> bool:
        """Whether status is a subresource, and can be written only there."""
        return "status" in self.subresources

    @property
    def storage(self) -> str:
        """The name of its storage, which both versions of Event share."""
        return self.resource.plural


def _other(group: str, plural: str, kind: str, scope: Scope, *subresources: str) -> ServedResource:
    """A resource of version v1 without further properties."""
    resource = ApiResource(group, "v1", plural, kind, scope)
    initial_status: Body | None = {} if "status" in subresources else None
    return ServedResource(resource, subresources=subresources, initial_status=initial_status)


def _custom(plural: str, kind: str, scope: Scope) -> ServedResource:
    """A resource of deploy/crds."""
    resource = ApiResource(GROUP, "v1alpha1", plural, kind, scope)
    return ServedResource(
        resource, subresources=("status",), initial_status={}, with_generation=True
    )


_STORAGE = "storage.k8s.io"
_RBAC = "rbac.authorization.k8s.io"
_ADMISSION = "admissionregistration.k8s.io"
_EVENT_FIELDS: dict[str, Path] = {
    "reason": ("reason",),
    "type": ("type",),
    "reportingController": ("reportingController",),
}

SERVED: tuple[ServedResource, ...] = (
    ServedResource(
        api_resource.NAMESPACES,
        short_names=("ns",),
        fields={"status.phase": ("status", "phase")},
        subresources=("status",),
        initial_status={"phase": "Active"},
        columns=(Column("Status", ("status", "phase")),),
    ),
    ServedResource(
        api_resource.NODES,
        short_names=("no",),
        subresources=("status",),
        fields={"spec.unschedulable": ("spec", "unschedulable")},
        columns=(Column("Version", ("status", "nodeInfo", "kubeletVersion")),),
    ),
    ServedResource(
        api_resource.PODS,
        short_names=("po",),
        subresources=("status", "binding", "eviction"),
        fields={
            "spec.nodeName": ("spec", "nodeName"),
            "spec.schedulerName": ("spec", "schedulerName"),
            "status.phase": ("status", "phase"),
        },
        initial_status={"phase": "Pending"},
        with_generation=True,
        columns=(Column("Status", ("status", "phase")), Column("Node", ("spec", "nodeName"))),
    ),
    ServedResource(api_resource.SERVICE_ACCOUNTS, short_names=("sa",)),
    ServedResource(api_resource.CONFIG_MAPS, short_names=("cm",)),
    _other("", "secrets", "Secret", Scope.NAMESPACED),
    ServedResource(
        CORE_EVENTS,
        short_names=("ev",),
        fields=_EVENT_FIELDS
        | {
            f"involvedObject.{name}": ("regarding", name)
            for name in ("kind", "namespace", "name", "uid", "apiVersion")
        },
        columns=(
            Column("Type", ("type",)),
            Column("Reason", ("reason",)),
            Column("Object", ("involvedObject", "name")),
            Column("Message", ("message",)),
        ),
    ),
    ServedResource(
        api_resource.EVENTS,
        short_names=("ev",),
        fields=_EVENT_FIELDS
        | {
            f"regarding.{name}": ("regarding", name)
            for name in ("kind", "namespace", "name", "uid", "apiVersion")
        },
        columns=(
            Column("Type", ("type",)),
            Column("Reason", ("reason",)),
            Column("Object", ("regarding", "name")),
            Column("Message", ("note",)),
        ),
    ),
    ServedResource(
        api_resource.RESOURCE_SLICES,
        fields={
            "spec.nodeName": ("spec", "nodeName"),
            "spec.driver": ("spec", "driver"),
            "spec.pool.name": ("spec", "pool", "name"),
        },
        with_generation=True,
        columns=(
            Column("Node", ("spec", "nodeName")),
            Column("Driver", ("spec", "driver")),
            Column("Pool", ("spec", "pool", "name")),
            Column("Devices", ("spec", "devices"), counted=True),
        ),
    ),
    ServedResource(api_resource.DEVICE_CLASSES, with_generation=True),
    ServedResource(
        api_resource.RESOURCE_CLAIMS,
        subresources=("status",),
        initial_status={},
        columns=(
            Column("Device", ("status", "allocation", "devices", "results", 0, "device")),
            Column("Reserved by", ("status", "reservedFor", 0, "name")),
        ),
    ),
    ServedResource(api_resource.RESOURCE_CLAIM_TEMPLATES),
    ServedResource(
        api_resource.DEVICE_TAINT_RULES,
        subresources=("status",),
        initial_status={},
        with_generation=True,
    ),
    ServedResource(
        api_resource.LEASES,
        columns=(Column("Holder", ("spec", "holderIdentity")),),
    ),
    ServedResource(
        api_resource.DAEMON_SETS,
        short_names=("ds",),
        subresources=("status",),
        initial_status={},
        with_generation=True,
    ),
    _other("apps", "deployments", "Deployment", Scope.NAMESPACED, "status"),
    _other("policy", "poddisruptionbudgets", "PodDisruptionBudget", Scope.NAMESPACED, "status"),
    _other("", "persistentvolumeclaims", "PersistentVolumeClaim", Scope.NAMESPACED, "status"),
    _other("", "persistentvolumes", "PersistentVolume", Scope.CLUSTER, "status"),
    _other(_STORAGE, "csidrivers", "CSIDriver", Scope.CLUSTER),
    _other(_STORAGE, "csinodes", "CSINode", Scope.CLUSTER),
    _other(_STORAGE, "csistoragecapacities", "CSIStorageCapacity", Scope.NAMESPACED),
    _other(_STORAGE, "storageclasses", "StorageClass", Scope.CLUSTER),
    _custom("queues", "Queue", Scope.CLUSTER),
    _custom("podgroups", "PodGroup", Scope.NAMESPACED),
    _other("networking.k8s.io", "networkpolicies", "NetworkPolicy", Scope.NAMESPACED),
    _other("", "resourcequotas", "ResourceQuota", Scope.NAMESPACED),
    _other(_RBAC, "roles", "Role", Scope.NAMESPACED),
    _other(_RBAC, "rolebindings", "RoleBinding", Scope.NAMESPACED),
    _other(_RBAC, "clusterroles", "ClusterRole", Scope.CLUSTER),
    _other(_RBAC, "clusterrolebindings", "ClusterRoleBinding", Scope.CLUSTER),
    _other(_ADMISSION, "validatingadmissionpolicies", "ValidatingAdmissionPolicy", Scope.CLUSTER),
    _other(
        _ADMISSION,
        "validatingadmissionpolicybindings",
        "ValidatingAdmissionPolicyBinding",
        Scope.CLUSTER,
    ),
    _other(_ADMISSION, "mutatingadmissionpolicies", "MutatingAdmissionPolicy", Scope.CLUSTER),
    _other(
        _ADMISSION,
        "mutatingadmissionpolicybindings",
        "MutatingAdmissionPolicyBinding",
        Scope.CLUSTER,
    ),
    _other(
        "apiextensions.k8s.io",
        "customresourcedefinitions",
        "CustomResourceDefinition",
        Scope.CLUSTER,
        "status",
    ),
)


def value_at(body: Body, path: Path) -> object:
    """The value at a path; None if there is none."""
    value: object = body
    for step in path:
        match value, step:
            case dict(), str() if step in value:
                value = value[step]
            case list(), int() if step < len(value):
                value = value[step]
            case _:
                return None
    return value


def groups() -> Iterator[tuple[str, str, list[ServedResource]]]:
    """The groups and versions with their resources, in the order of SERVED."""
    by_version: dict[tuple[str, str], list[ServedResource]] = {}
    for served in SERVED:
        key = (served.resource.group, served.resource.version)
        by_version.setdefault(key, []).append(served)
    for (group, version), members in by_version.items():
        yield group, version, members
